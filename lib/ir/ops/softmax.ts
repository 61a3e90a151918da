// Softmax over the columns of a row.
import { defineOp, rowOf, table } from "./op.ts";

/** exp(v - max) / sum, in float64. */
export function softmaxOf(values: ArrayLike<number>): number[] {
  const shifted = Array.from(values);
  const top = shifted.reduce((a, v) => Math.max(a, v), -Infinity);
  const powers = shifted.map((v) => Math.exp(v - top));
  const sum = powers.reduce((a, v) => a + v, 0);
  return powers.map((p) => p / sum);
}

export const softmax = defineOp("softmax(x: f32[T,D]) -> f32[T,D]", {
  evaluate: ({ x }) => {
    const rows = Array.from({ length: x!.dims[0]! }, (_, t) => softmaxOf(rowOf(x!, t)));
    return [table(x!.dims[0]!, x!.dims[1]!, (t, d) => rows[t]![d]!)];
  },
});
