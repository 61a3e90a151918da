// The weighted sum of what the experts gave.
import { defineOp, fixed, require, rowOf, table } from "./op.ts";

export const moeCombine = defineOp("moe_combine(y: f32[T,M], weights: f32[T,k]) -> f32[T,D]", {
  derive: ({ M, k }) => {
    const width = fixed(M, "M") / fixed(k, "k");
    require(Number.isInteger(width), `${M} columns are not ${k} equal parts`);
    return { D: width };
  },
  evaluate: ({ y, weights }) => {
    const slots = weights!.dims[1]!;
    const width = y!.dims[1]! / slots;
    return [
      table(y!.dims[0]!, width, (t, d) => {
        let sum = 0;
        for (let j = 0; j < slots; j++) sum += rowOf(weights!, t)[j]! * rowOf(y!, t)[j * width + d]!;
        return sum;
      }),
    ];
  },
});
