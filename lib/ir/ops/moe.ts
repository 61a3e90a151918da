// Mixture of experts: choosing, the experts' matrices, the weighted sum.
import { defineOp, dot, fixed, require, rowOf, type Tensor, table } from "./op.ts";
import { softmaxOf } from "./reduce.ts";

/** Columns of the `count` largest values, largest first, the lowest column first among equals. */
function topColumns(values: readonly number[], count: number): number[] {
  const columns = Array.from(values, (_, i) => i);
  return columns.sort((a, b) => values[b]! - values[a]! || a - b).slice(0, count);
}

export const moeRoute = defineOp(
  "moe_route(logits: f32[T,E], top: i32, scoring: i32, renormalize: i32, factor: f32) -> i32[T,k], f32[T,k]",
  {
    derive: ({ E }, { top, scoring }) => {
      require(top! > 0 && top! <= fixed(E, "E"), `${top} of ${E} experts`);
      require(scoring! >= 0 && scoring! <= 2, `scoring ${scoring} does not exist`);
      return { k: top! };
    },
    evaluate: ({ logits }, { top, scoring, renormalize, factor }) => {
      const rows = logits!.dims[0]!;
      const experts: Tensor = { dims: [rows, top!], data: new Int32Array(rows * top!) };
      const weights = table(rows, top!, () => 0);
      for (let t = 0; t < rows; t++) {
        const row = Array.from(rowOf(logits!, t));
        const scores = scoring === 0 ? softmaxOf(row) : scoring === 1 ? row : row.map((v) => 1 / (1 + Math.exp(-v)));
        const chosen = topColumns(scoring === 2 ? scores : row, top!);
        let kept = chosen.map((e) => scores[e]!);
        if (scoring === 1) kept = softmaxOf(kept);
        const sum = renormalize ? kept.reduce((a, v) => a + v, 0) : 1;
        experts.data.set(chosen, t * top!);
        weights.data.set(
          kept.map((v) => (v / sum) * factor!),
          t * top!,
        );
      }
      return [experts, weights];
    },
  },
);

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
