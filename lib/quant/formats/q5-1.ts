// 32 values of 5 bits with a half-precision scale and minimum.
import { defineFormat } from "../format.ts";

export const q5_1 = defineFormat("q5_1", "int8", ["p32_q5_1"]);
