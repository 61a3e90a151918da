// All formats. Here a new format gets its line.
import type { QuantFormat } from "./format.ts";
import { bf16 } from "./formats/bf16.ts";
import { f16 } from "./formats/f16.ts";
import { f32 } from "./formats/f32.ts";
import { q4_0 } from "./formats/q4-0.ts";
import { q4_1 } from "./formats/q4-1.ts";
import { q4_k } from "./formats/q4-k.ts";
import { q5_0 } from "./formats/q5-0.ts";
import { q5_1 } from "./formats/q5-1.ts";
import { q5_k } from "./formats/q5-k.ts";
import { q6_k } from "./formats/q6-k.ts";
import { q8_0 } from "./formats/q8-0.ts";

export const quantFormats: readonly QuantFormat[] = [f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k, q6_k];

/** The format of weights with this checkpoint dtype; undefined when there is none. */
export function detectFormat(dtype: string): QuantFormat | undefined {
  return quantFormats.find((format) => format.dtype === dtype);
}
