// Cosines and sines of a step's positions (Su et al. 2021).
import { defineOp, fixed, rowOf, table } from "./op.ts";

export const ropeTable = defineOp(
  "rope_table(positions: i32[T], row: i32[T], inv_freq: f32[P,H], factor: f32[P]) -> f32[T,N]",
  {
    derive: ({ H }) => ({ N: 2 * fixed(H, "H") }),
    evaluate: ({ positions, row, inv_freq, factor }) => {
      const half = inv_freq!.dims[1]!;
      return [
        table(positions!.dims[0]!, 2 * half, (t, n) => {
          const variant = row!.data[t]!;
          const angle = Math.fround(positions!.data[t]! * rowOf(inv_freq!, variant)[n % half]!);
          return Math.fround(n < half ? Math.cos(angle) : Math.sin(angle)) * factor!.data[variant]!;
        }),
      ];
    },
  },
);
