// The matrices of the chosen experts.
import { defineOp, dot, fixed, require, rowOf, table } from "./op.ts";

export const moeLinear = defineOp(
  "moe_linear(x: f32[T,K], experts: i32[T,k], w: W[E,N,K], per_slot: i32) -> f32[T,M]",
  {
    free: ["w"],
    derive: ({ K, k }, { per_slot }, shapes) => {
      const w = shapes.w!;
      const slots = fixed(k, "k");
      require(w.length === 3 &&
        K === fixed(w[2], "K") * (per_slot ? slots : 1), `x has ${K} columns, w is [${w}], ${slots} slots`);
      return { M: slots * fixed(w[1], "N") };
    },
    evaluate: ({ x, experts, w }, { per_slot }) => {
      const [, rows, columns] = w!.dims as [number, number, number];
      const slots = experts!.dims[1]!;
      return [
        table(x!.dims[0]!, slots * rows, (t, m) => {
          const slot = Math.floor(m / rows);
          const expert = experts!.data[t * slots + slot]!;
          if (expert < 0) return 0;
          const input = rowOf(x!, t).subarray(per_slot ? slot * columns : 0);
          return dot(rowOf(w!, expert * rows + (m % rows)), input);
        }),
      ];
    },
  },
);
