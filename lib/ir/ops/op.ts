// What an op is: a signature, a shape rule and a reference evaluation (clear, not fast; sums in float64). The ops themselves lie
// beside this file, one family or op a file.
import { InferxError } from "../../base/errors.ts";
import type { DataType, Dim } from "../graph.ts";
import { parseSignature, type Signature } from "../signature.ts";

/** A dense row-major array. A cache is one of dims [blocks, tokens per block, 2, KV heads, head width]: K then V of each slot. */
export interface Tensor {
  readonly dims: readonly number[];
  readonly data: Float32Array | Int32Array | Uint32Array;
}

export type Attrs = Readonly<Record<string, number>>;
export type Shapes = Readonly<Record<string, readonly Dim[] | undefined>>;

export interface Op {
  readonly signature: Signature;
  /** Operands in which a dimension may be 1 where the signature's has a larger value: it is repeated. */
  readonly broadcast?: readonly string[];
  /** Operands whose dims do not follow the signature's names; `derive` checks them. */
  readonly free?: readonly string[];
  /** Values of the signature's dimension names that only results have; throws through `require` when operands do not fit. */
  readonly derive?: (dims: Readonly<Record<string, Dim>>, attrs: Attrs, shapes: Shapes) => Record<string, Dim>;
  /** Operands by name (an omitted one is absent), results in order. A cache is changed in place and returned. */
  readonly evaluate: (operands: Operands, attrs: Attrs) => Tensor[];
}

/** Operands of an evaluation; asking for one that the signature makes mandatory always succeeds. */
export type Operands = Readonly<Record<string, Tensor>>;

export function defineOp(signature: string, rest: Omit<Op, "signature">): Op {
  return { signature: parseSignature(signature), ...rest };
}

/** For shape rules: throws IX_MODEL_CONFIG. */
export function require(condition: boolean, message: string): asserts condition {
  if (!condition) throw new InferxError("IX_MODEL_CONFIG", message);
}

/** A dimension that must be known when the graph is built. */
export function fixed(dim: Dim | undefined, name: string): number {
  require(typeof dim === "number", `dimension ${name} must be a number, got ${dim}`);
  return dim;
}

/**
 * The shapes and types of an op's results.
 * @throws IX_MODEL_CONFIG naming the operand that does not fit.
 */
export function inferResults(
  op: Op,
  shapes: Shapes,
  attrs: Attrs,
): { dtype: DataType | "kv"; shape: readonly Dim[] }[] {
  const dims: Record<string, Dim> = {};
  for (const operand of op.signature.operands) {
    const shape = shapes[operand.name];
    if (!shape) {
      require(operand.optional, `operand ${operand.name} is missing`);
      continue;
    }
    if (operand.type.startsWith("kv_") || op.free?.includes(operand.name)) continue;
    require(shape.length ===
      operand.dims.length, `operand ${operand.name}: rank ${shape.length}, expected [${operand.dims}]`);
    operand.dims.forEach((name, axis) => {
      const dim = shape[axis]!;
      const bound = /^\d+$/.test(name) ? Number(name) : (attrs[name] ?? (dims[name] ??= dim));
      const fits = dim === bound || (dim === 1 && op.broadcast?.includes(operand.name));
      require(fits === true, `operand ${operand.name}: [${shape.join(", ")}], but ${name} is ${bound}`);
    });
  }
  for (const { name, type } of op.signature.scalars) {
    const value = attrs[name];
    require(value !== undefined && Number.isFinite(value), `scalar ${name} must be a finite number, got ${value}`);
    require(type === "f32" || Number.isInteger(value), `scalar ${name} must be an integer, got ${value}`);
  }
  Object.assign(dims, op.derive?.(dims, attrs, shapes));
  return op.signature.results.map(({ type, dims: names, inPlaceOf }) => {
    if (inPlaceOf !== undefined) return { dtype: "kv", shape: shapes[inPlaceOf]! };
    const shape = names.map((name) => (/^\d+$/.test(name) ? Number(name) : (attrs[name] ?? dims[name])));
    return { dtype: type as DataType, shape: shape as Dim[] };
  });
}

/** f32 [rows, columns] made by a function of the place. */
export function table(rows: number, columns: number, at: (row: number, column: number) => number): Tensor {
  const data = new Float32Array(rows * columns);
  for (let row = 0, i = 0; row < rows; row++)
    for (let column = 0; column < columns; column++) data[i++] = at(row, column);
  return { dims: [rows, columns], data };
}

/** Row `index` of a matrix, or of a stack of them seen as one. */
export function rowOf(tensor: Tensor, index: number): Float32Array {
  const columns = tensor.dims.at(-1)!;
  return (tensor.data as Float32Array).subarray(index * columns, (index + 1) * columns);
}

export function dot(a: Float32Array, b: Float32Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i]! * b[i]!;
  return sum;
}
