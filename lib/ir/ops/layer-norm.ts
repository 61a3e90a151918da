// Norm with the mean subtracted (Ba, Kiros, Hinton 2016).
import { defineOp } from "./op.ts";
import { checkGroups, normGroups } from "./rms-norm.ts";

export const layerNorm = defineOp(
  "layer_norm(x: f32[T,D], w?: f32[D], b?: f32[D], groups: i32, eps: f32) -> f32[T,D]",
  {
    free: ["w", "b"],
    derive: ({ D }, { groups }, shapes) => checkGroups(D, groups!, shapes, ["w", "b"]),
    evaluate: ({ x, w, b }, { groups, eps }) => [normGroups(x!, groups!, eps!, true, w, b)],
  },
);
