// The same where gates and factors lie side by side in one matrix.
import { activations, checkKind } from "./act.ts";
import { defineOp, fixed, require, rowOf, table } from "./op.ts";

export const gatedAct = defineOp("gated_act(x: f32[T,N], groups: i32, kind: i32) -> f32[T,M]", {
  derive: ({ N }, attrs) => {
    checkKind(attrs);
    const columns = fixed(N, "N");
    require(attrs.groups! > 0 &&
      columns % (2 * attrs.groups!) === 0, `${columns} columns are not ${attrs.groups} pairs of halves`);
    return { M: columns / 2 };
  },
  evaluate: ({ x }, { groups, kind }) => {
    const width = x!.dims[1]! / groups! / 2;
    return [
      table(x!.dims[0]!, x!.dims[1]! / 2, (t, m) => {
        const gate = Math.floor(m / width) * 2 * width + (m % width);
        return activations[kind!]!.f(rowOf(x!, t)[gate]!) * rowOf(x!, t)[gate + width]!;
      }),
    ];
  },
});
