// Two activations side by side.
import { defineOp, fixed, rowOf, table } from "./op.ts";

export const concat = defineOp("concat(a: f32[T,D], b: f32[T,E]) -> f32[T,F]", {
  derive: ({ D, E }) => ({ F: fixed(D, "D") + fixed(E, "E") }),
  evaluate: ({ a, b }) => {
    const split = a!.dims[1]!;
    return [
      table(a!.dims[0]!, split + b!.dims[1]!, (t, d) => (d < split ? rowOf(a!, t)[d]! : rowOf(b!, t)[d - split]!)),
    ];
  },
});
