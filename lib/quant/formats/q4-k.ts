// 256 values of 4 bits; 8 groups with scales and minima of 6 bits.
import { defineFormat } from "../format.ts";

export const q4_k = defineFormat("q4_k", "int8", ["p32_q4_k"]);
