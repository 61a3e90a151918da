// 32 values of 4 bits, offset 8, and one half-precision scale.
import { defineFormat } from "../format.ts";

export const q4_0 = defineFormat("q4_0", "int8", ["p32_q4_0"]);
