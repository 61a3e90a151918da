// An activation as the gate of a product.
import { activations, checkKind } from "./act.ts";
import { defineOp, rowOf, table } from "./op.ts";

export const actMul = defineOp("act_mul(gate: f32[T,F], up: f32[T,F], kind: i32) -> f32[T,F]", {
  derive: (_, attrs) => {
    checkKind(attrs);
    return {};
  },
  evaluate: ({ gate, up }, { kind }) => [
    table(gate!.dims[0]!, gate!.dims[1]!, (t, f) => activations[kind!]!.f(rowOf(gate!, t)[f]!) * rowOf(up!, t)[f]!),
  ],
});
