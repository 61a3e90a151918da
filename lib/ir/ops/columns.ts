// A slice of columns: a view, no kernel runs for it.
import { defineOp, fixed, require, rowOf, table } from "./op.ts";

export const columns = defineOp("columns(x: f32[T,N], start: i32, count: i32) -> f32[T,count]", {
  derive: ({ N }, { start, count }) => {
    const width = fixed(N, "N");
    require(start! >= 0 && count! > 0 && start! + count! <= width, `columns ${start} + ${count} of ${width}`);
    return {};
  },
  evaluate: ({ x }, { start, count }) => [table(x!.dims[0]!, count!, (t, d) => rowOf(x!, t)[start! + d]!)],
});
