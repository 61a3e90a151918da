// Ops on each element by itself: two operands (b may be one row or, except in add and mul, one column, which is repeated), and one.
import { defineOp, type Op, rowOf, type Tensor, table } from "./op.ts";

function binary(name: string, f: (a: number, b: number) => number): Op {
  return defineOp(`${name}(a: f32[T,D], b: f32[T,D]) -> f32[T,D]`, {
    broadcast: ["b"],
    evaluate: ({ a, b }) => {
      const at = (t: number, d: number) => rowOf(b!, b!.dims[0] === 1 ? 0 : t)[b!.dims[1] === 1 ? 0 : d]!;
      return [table(a!.dims[0]!, a!.dims[1]!, (t, d) => f(rowOf(a!, t)[d]!, at(t, d)))];
    },
  });
}

function unary(name: string, f: (x: number) => number): Op {
  return defineOp(`${name}(x: f32[T,D]) -> f32[T,D]`, { evaluate: ({ x }) => [mapTensor(x!, f)] });
}

function mapTensor(x: Tensor, f: (x: number) => number): Tensor {
  return table(x.dims[0]!, x.dims[1]!, (t, d) => f(rowOf(x, t)[d]!));
}

export const add = binary("add", (a, b) => a + b);
export const mul = binary("mul", (a, b) => a * b);
export const sub = binary("sub", (a, b) => a - b);
export const div = binary("div", (a, b) => a / b);
export const max = binary("max", Math.max);

export const exp = unary("exp", Math.exp);
export const neg = unary("neg", (x) => -x);
export const recip = unary("recip", (x) => 1 / x);
export const sqrt = unary("sqrt", Math.sqrt);
export const rsqrt = unary("rsqrt", (x) => 1 / Math.sqrt(x));
export const tanh = unary("tanh", Math.tanh);

export const scale = defineOp("scale(x: f32[T,D], factor: f32) -> f32[T,D]", {
  evaluate: ({ x }, { factor }) => [mapTensor(x!, (v) => v * factor!)],
});

export const softcap = defineOp("softcap(x: f32[T,D], cap: f32) -> f32[T,D]", {
  evaluate: ({ x }, { cap }) => [mapTensor(x!, (v) => cap! * Math.tanh(v / cap!))],
});
