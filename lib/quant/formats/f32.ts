// IEEE single.
import { defineFormat } from "../format.ts";

export const f32 = defineFormat("f32", "f32", ["p32_f32", "row_f32"]);
