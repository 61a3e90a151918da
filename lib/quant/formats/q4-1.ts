// 32 values of 4 bits with a half-precision scale and minimum.
import { defineFormat } from "../format.ts";

export const q4_1 = defineFormat("q4_1", "int8", ["p32_q4_1"]);
