// The upper half of an IEEE single; where a device lacks it, single holds it without loss.
import { defineFormat } from "../format.ts";

export const bf16 = defineFormat("bf16", "bf16", ["p32_bf16", "row_bf16", "p32_f32", "row_f32"]);
