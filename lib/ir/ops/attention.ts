// Causal attention of a ragged batch over the paged cache.
import { cacheShape } from "./kv-write.ts";
import { defineOp, require, rowOf, table } from "./op.ts";

export const attention = defineOp(
  "attention(q: f32[T,N], cache: kv_C[…], seq_start: i32[R], seq_context: i32[R], seq_row: i32[R], block_table: i32[rows,cols], sinks?: f32[H], heads: i32, scale: f32, window: i32, softcap: f32) -> f32[T,N]",
  {
    derive: ({ N, H }, { heads }, shapes) => {
      const { kvHeads, headDim } = cacheShape(shapes);
      require(N === heads! * headDim &&
        heads! % kvHeads === 0, `q has ${N} columns for ${heads} heads, the cache ${kvHeads} x ${headDim}`);
      require(H === undefined || H === heads, `${H} sinks for ${heads} heads`);
      return {};
    },
    evaluate: (
      { q, cache, seq_start, seq_context, seq_row, block_table, sinks },
      { heads, scale, window, softcap },
    ) => {
      const [, blockTokens, , kvHeads, width] = cache!.dims as [number, number, number, number, number];
      const out = table(q!.dims[0]!, q!.dims[1]!, () => 0);
      const place = (row: number, position: number, value: 0 | 1, head: number) => {
        const slot =
          rowOf(block_table!, row)[Math.floor(position / blockTokens)]! * blockTokens + (position % blockTokens);
        return ((slot * 2 + value) * kvHeads + head) * width;
      };
      for (let r = 0; r < seq_context!.dims[0]!; r++) {
        const [start, end, row] = [seq_start!.data[r]!, seq_start!.data[r + 1]!, seq_row!.data[r]!];
        for (let t = start; t < end; t++) {
          const last = seq_context!.data[r]! - (end - t); // position of this token
          const first = window! > 0 ? Math.max(0, last - window! + 1) : 0;
          for (let h = 0; h < heads!; h++) {
            const kv = Math.floor(h / (heads! / kvHeads));
            const scores: number[] = [];
            for (let p = first; p <= last; p++) {
              const key = place(row, p, 0, kv);
              let sum = 0;
              for (let d = 0; d < width; d++) sum += rowOf(q!, t)[h * width + d]! * cache!.data[key + d]!;
              scores.push(softcap! > 0 ? softcap! * Math.tanh((sum * scale!) / softcap!) : sum * scale!);
            }
            const top = scores.reduce((a, s) => Math.max(a, s), sinks ? sinks.data[h]! : -Infinity);
            const powers = scores.map((s) => Math.exp(s - top));
            const total = powers.reduce((a, p) => a + p, sinks ? Math.exp(sinks.data[h]! - top) : 0);
            const sums = new Float64Array(width);
            powers.forEach((power, i) => {
              const value = place(row, first + i, 1, kv);
              for (let d = 0; d < width; d++) sums[d]! += (power / total) * cache!.data[value + d]!;
            });
            rowOf(out, t).set(sums, h * width);
          }
        }
      }
      return [out];
    },
  },
);
