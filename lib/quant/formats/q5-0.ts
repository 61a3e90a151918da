// 32 values of 5 bits, offset 16, and one half-precision scale.
import { defineFormat } from "../format.ts";

export const q5_0 = defineFormat("q5_0", "int8", ["p32_q5_0"]);
