// Chosen rows of an activation.
import { defineOp, rowOf, table } from "./op.ts";

export const gather = defineOp("gather(x: f32[T,D], rows: i32[S]) -> f32[S,D]", {
  evaluate: ({ x, rows }) => [table(rows!.dims[0]!, x!.dims[1]!, (s, d) => rowOf(x!, rows!.data[s]!)[d]!)],
});
