// 32 signed bytes and one half-precision scale.
import { defineFormat } from "../format.ts";

export const q8_0 = defineFormat("q8_0", "int8", ["p32_q8_0"]);
