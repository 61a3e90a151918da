// Rotation of heads by their positions (Su et al. 2021).
import { defineOp, fixed, require, rowOf, type Tensor, table } from "./op.ts";

/** x with the first 2H columns of every head rotated by `angles` [T, 2H] (cos then sin). */
export function rotate(x: Tensor, angles: Tensor, heads: number, interleaved: number): Tensor {
  const width = x.dims[1]! / heads;
  const half = angles.dims[1]! / 2;
  const out = table(x.dims[0]!, x.dims[1]!, (t, n) => rowOf(x, t)[n]!);
  for (let t = 0; t < x.dims[0]!; t++) {
    const row = rowOf(out, t);
    const angle = rowOf(angles, t);
    for (let head = 0; head < heads; head++) {
      for (let i = 0; i < half; i++) {
        const first = head * width + (interleaved ? 2 * i : i);
        const second = interleaved ? first + 1 : first + half;
        const [a, b, cos, sin] = [row[first]!, row[second]!, angle[i]!, angle[half + i]!];
        row[first] = a * cos - b * sin;
        row[second] = b * cos + a * sin;
      }
    }
  }
  return out;
}

export const rope = defineOp("rope(x: f32[T,N], table: f32[T,R], heads: i32, interleaved: i32) -> f32[T,N]", {
  derive: ({ N, R }, { heads }) => {
    const width = fixed(N, "N") / heads!;
    require(Number.isInteger(width) &&
      fixed(R, "R") <= width, `${heads} heads in ${N} columns cannot be rotated by ${R}`);
    return {};
  },
  evaluate: ({ x, table: angles }, { heads, interleaved }) => [rotate(x!, angles!, heads!, interleaved!)],
});
