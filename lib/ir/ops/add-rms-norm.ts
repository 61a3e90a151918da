// The sum of the residual stream and its norm in one pass.
import { defineOp, rowOf, table } from "./op.ts";
import { normGroups } from "./rms-norm.ts";

export const addRmsNorm = defineOp(
  "add_rms_norm(a: f32[T,D], b: f32[T,D], w: f32[D], eps: f32) -> f32[T,D], f32[T,D]",
  {
    evaluate: ({ a, b, w }, { eps }) => {
      const sum = table(a!.dims[0]!, a!.dims[1]!, (t, d) => rowOf(a!, t)[d]! + rowOf(b!, t)[d]!);
      return [sum, normGroups(sum, 1, eps!, false, w)];
    },
  },
);
