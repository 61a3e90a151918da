// Activations, alone and as the gate of a product.
import { type Attrs, defineOp, fixed, require, rowOf, table } from "./op.ts";

/** erf in float64: its Taylor series near zero, the continued fraction of erfc elsewhere. */
function erf(x: number): number {
  const a = Math.abs(x);
  if (a > 6) return Math.sign(x);
  if (a < 2.5) {
    let term = x;
    let sum = x;
    for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) {
      term *= (-x * x) / n;
      sum += term / (2 * n + 1);
    }
    return (2 / Math.sqrt(Math.PI)) * sum;
  }
  let fraction = a;
  for (let n = 60; n > 0; n--) fraction = a + n / 2 / fraction;
  return Math.sign(x) * (1 - Math.exp(-a * a) / (fraction * Math.sqrt(Math.PI)));
}

const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));

/** The kinds in the order of their numbers. */
export const activations: readonly { readonly name: string; readonly f: (x: number) => number }[] = [
  { name: "silu", f: (x) => x * sigmoid(x) },
  { name: "gelu", f: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)) },
  { name: "gelu_tanh", f: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))) },
  { name: "relu", f: (x) => Math.max(0, x) },
  { name: "quick_gelu", f: (x) => x * sigmoid(1.702 * x) },
  { name: "sigmoid", f: sigmoid },
  { name: "tanh", f: Math.tanh },
];

function checkKind(attrs: Attrs): void {
  require(activations[attrs.kind!] !== undefined, `activation kind ${attrs.kind} does not exist`);
}

export const act = defineOp("act(x: f32[T,D], kind: i32) -> f32[T,D]", {
  derive: (_, attrs) => {
    checkKind(attrs);
    return {};
  },
  evaluate: ({ x }, { kind }) => [table(x!.dims[0]!, x!.dims[1]!, (t, d) => activations[kind!]!.f(rowOf(x!, t)[d]!))],
});

export const actMul = defineOp("act_mul(gate: f32[T,F], up: f32[T,F], kind: i32) -> f32[T,F]", {
  derive: (_, attrs) => {
    checkKind(attrs);
    return {};
  },
  evaluate: ({ gate, up }, { kind }) => [
    table(gate!.dims[0]!, gate!.dims[1]!, (t, f) => activations[kind!]!.f(rowOf(gate!, t)[f]!) * rowOf(up!, t)[f]!),
  ],
});

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
