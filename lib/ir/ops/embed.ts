// Rows of a table by number.
import { defineOp, rowOf, table } from "./op.ts";

export const embed = defineOp("embed(ids: i32[T], w: W[V,D]) -> f32[T,D]", {
  evaluate: ({ ids, w }) => [table(ids!.dims[0]!, w!.dims[1]!, (t, d) => rowOf(w!, ids!.data[t]!)[d]!)],
});
