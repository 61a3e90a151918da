// x w^T + bias.
import { defineOp, dot, rowOf, table } from "./op.ts";

export const linear = defineOp("linear(x: f32[T,K], w: W[N,K], bias?: f32[N]) -> f32[T,N]", {
  evaluate: ({ x, w, bias }) => [
    table(x!.dims[0]!, w!.dims[0]!, (t, n) => dot(rowOf(x!, t), rowOf(w!, n)) + (bias ? bias.data[n]! : 0)),
  ],
});
