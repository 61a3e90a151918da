// Which experts a token goes to, and with which weights.
import { defineOp, fixed, require, rowOf, type Tensor, table } from "./op.ts";
import { softmaxOf } from "./softmax.ts";

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
