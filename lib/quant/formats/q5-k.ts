// 256 values of 5 bits; 8 groups with scales and minima of 6 bits.
import { defineFormat } from "../format.ts";

export const q5_k = defineFormat("q5_k", "int8", ["p32_q5_k"]);
