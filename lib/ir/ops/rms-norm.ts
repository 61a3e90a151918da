// Root-mean-square norm of equal parts of a row (Zhang, Sennrich 2019).
import { defineOp, require, type Shapes, type Tensor, table } from "./op.ts";

/** w and b of a norm have one value per column of a group, or are absent. */
export function checkGroups(
  columns: unknown,
  groups: number,
  shapes: Shapes,
  weights: readonly string[],
): Record<string, never> {
  require(typeof columns === "number" &&
    groups > 0 &&
    columns % groups === 0, `${columns} columns do not fall into ${groups} groups`);
  for (const name of weights) {
    const shape = shapes[name];
    require(!shape ||
      (shape.length === 1 && shape[0] === columns / groups), `${name}: [${shape}], expected [${columns / groups}]`);
  }
  return {};
}

/** x with every group of every row normed by itself; `centred` subtracts its mean first. */
export function normGroups(x: Tensor, groups: number, eps: number, centred: boolean, w?: Tensor, b?: Tensor): Tensor {
  const width = x.dims[1]! / groups;
  const out = table(x.dims[0]!, x.dims[1]!, () => 0);
  for (let row = 0; row < x.dims[0]! * groups; row++) {
    const values = (x.data as Float32Array).subarray(row * width, (row + 1) * width);
    const mean = centred ? values.reduce((a, v) => a + v, 0) / width : 0;
    const factor = 1 / Math.sqrt(values.reduce((a, v) => a + (v - mean) ** 2, 0) / width + eps);
    for (let i = 0; i < width; i++)
      out.data[row * width + i] = (values[i]! - mean) * factor * (w?.data[i] ?? 1) + (b?.data[i] ?? 0);
  }
  return out;
}

export const rmsNorm = defineOp("rms_norm(x: f32[T,D], w?: f32[D], groups: i32, eps: f32) -> f32[T,D]", {
  free: ["w"],
  derive: ({ D }, { groups }, shapes) => checkGroups(D, groups!, shapes, ["w"]),
  evaluate: ({ x, w }, { groups, eps }) => [normGroups(x!, groups!, eps!, false, w)],
});
