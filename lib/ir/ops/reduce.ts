// Reductions over the columns of a row.
import { defineOp, rowOf, table } from "./op.ts";

export const reduceSum = defineOp("reduce_sum(x: f32[T,D]) -> f32[T,1]", {
  evaluate: ({ x }) => [table(x!.dims[0]!, 1, (t) => rowOf(x!, t).reduce((a, v) => a + v, 0))],
});

export const reduceMax = defineOp("reduce_max(x: f32[T,D]) -> f32[T,1]", {
  evaluate: ({ x }) => [table(x!.dims[0]!, 1, (t) => rowOf(x!, t).reduce((a, v) => Math.max(a, v), -Infinity))],
});
