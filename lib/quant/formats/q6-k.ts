// 256 values of 6 bits, offset 32; 16 groups with scales of 8 bits.
import { defineFormat } from "../format.ts";

export const q6_k = defineFormat("q6_k", "int8", ["p32_q6_k"]);
