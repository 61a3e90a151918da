// Activations: the table of kinds, and the op that applies one.
import { type Attrs, defineOp, require, rowOf, table } from "./op.ts";

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

/** For shape rules. */
export function checkKind(attrs: Attrs): void {
  require(activations[attrs.kind!] !== undefined, `activation kind ${attrs.kind} does not exist`);
}

export const act = defineOp("act(x: f32[T,D], kind: i32) -> f32[T,D]", {
  derive: (_, attrs) => {
    checkKind(attrs);
    return {};
  },
  evaluate: ({ x }, { kind }) => [table(x!.dims[0]!, x!.dims[1]!, (t, d) => activations[kind!]!.f(rowOf(x!, t)[d]!))],
});
