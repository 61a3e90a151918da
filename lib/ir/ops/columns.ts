// Placement of columns: a slice (a view, no kernel runs for it) and joining two.
import { defineOp, fixed, require, rowOf, table } from "./op.ts";

export const columns = defineOp("columns(x: f32[T,N], start: i32, count: i32) -> f32[T,count]", {
  derive: ({ N }, { start, count }) => {
    const width = fixed(N, "N");
    require(start! >= 0 && count! > 0 && start! + count! <= width, `columns ${start} + ${count} of ${width}`);
    return {};
  },
  evaluate: ({ x }, { start, count }) => [table(x!.dims[0]!, count!, (t, d) => rowOf(x!, t)[start! + d]!)],
});

export const concat = defineOp("concat(a: f32[T,D], b: f32[T,E]) -> f32[T,F]", {
  derive: ({ D, E }) => ({ F: fixed(D, "D") + fixed(E, "E") }),
  evaluate: ({ a, b }) => {
    const split = a!.dims[1]!;
    return [
      table(a!.dims[0]!, split + b!.dims[1]!, (t, d) => (d < split ? rowOf(a!, t)[d]! : rowOf(b!, t)[d - split]!)),
    ];
  },
});
