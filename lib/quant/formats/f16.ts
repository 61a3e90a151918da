// IEEE half; where a device lacks it, single holds it without loss.
import { defineFormat } from "../format.ts";

export const f16 = defineFormat("f16", "f16", ["p32_f16", "row_f16", "p32_f32", "row_f32"]);
