// The graph: SSA values, nodes, and where weights come from. Plain immutable data; an object's identity is the value's identity.
// Not here: how builders make one (builder.ts), what ops mean (ops/), how to walk one (links.ts).

/**
 * A dimension. `T` tokens in the step, `R` sequences in the step, `S` rows that get logits: known at each step.
 * `P` sequences that may run at a time, `C` blocks of the longest context, `B` logit-bias entries in a step: limits, known when a plan is made.
 */
export type Dim = number | "T" | "R" | "S" | "P" | "C" | "B";

/**
 * Arithmetic types of results and inputs. Weights have a checkpoint dtype ("bf16", "q4_k") and later a layout ("p32_q4_k"); caches "kv".
 * Builders and ops know float results as f32; passes/narrow.ts makes some of them bf16.
 */
export type DataType = "f32" | "i32" | "u32" | "bf16";

/**
 * Rows of one checkpoint tensor, seen as a matrix: the last dimension is a row, all others are counted together; of a
 * one-dimensional tensor every element is a row. Rows are counted after `transposed` and `ropeHeads` were applied.
 */
export interface RowSource {
  /** Name in the checkpoint; "" = rows of zeros. */
  readonly tensor: string;
  readonly rowStart: number;
  readonly rowCount: number;
  /** > 0: rows were permuted per head as GGUF's llama converter does (halves interleaved); row (h, half, j) is read from (h, j, half). */
  readonly ropeHeads: number;
  /** The tensor is stored [in, out]. */
  readonly transposed: boolean;
  /** 1 is added to every element (after `scale`). */
  readonly addOne: boolean;
  readonly scale: number;
}

interface ValueBase {
  /** For people: the checkpoint's name of a weight, the name of an input. Results are numbered by the printer. */
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly Dim[];
}

/** Written by the host: staged anew for each step, or (`persistent`) kept on the device and updated in parts. */
export interface InputValue extends ValueBase {
  readonly kind: "input";
  readonly dtype: DataType;
  readonly persistent: boolean;
}

/** A matrix [N, K], a stack of them [E, N, K] or a vector [D]; the sources give its rows in order: this list is the load program. */
export interface WeightValue extends ValueBase {
  readonly kind: "weight";
  readonly shape: readonly number[];
  readonly sources: readonly RowSource[];
}

export interface ConstantValue extends ValueBase {
  readonly kind: "constant";
  readonly dtype: "f32";
  readonly shape: readonly number[];
  readonly data: Float32Array;
}

/** The state of one layer's KV cache at one moment; `kv_write` makes the next one. Shape: [KV heads, head width]. */
export interface CacheValue extends ValueBase {
  readonly kind: "cache";
  readonly group: number;
  readonly layer: number;
}

export interface ResultValue extends ValueBase {
  readonly kind: "result";
}

export type Value = InputValue | WeightValue | ConstantValue | CacheValue | ResultValue;

/** The programs of a plan, in the order in which a step runs them. */
export const programs = ["forward", "sample"] as const;
export type Program = (typeof programs)[number];

export interface Node {
  readonly op: string;
  /** In the order of the op's signature; undefined = an omitted optional operand. */
  readonly operands: readonly (Value | undefined)[];
  /** The signature's scalars by name. */
  readonly attrs: Readonly<Record<string, number>>;
  readonly outputs: readonly Value[];
  /** For dumps and traces: "model.layers.0.self_attn.q_proj". */
  readonly name: string;
  readonly program: Program;
  /** The place of the chosen kernel in the list of kernels, set by select-kernels. */
  readonly kernel?: number;
}

export interface CacheGroup {
  readonly kind: "full" | "window";
  /** Newest positions that a query of a window layer sees, itself included; 0 for `full`. */
  readonly window: number;
  readonly layers: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly slots: InputValue; // i32 [T]
  readonly blockTable: InputValue; // i32 [P, C], persistent
}

/** How a builder declares a group. */
export interface CacheOptions {
  kind: "full" | "window";
  /** Newest positions that a query sees, itself included; only for "window". */
  window?: number;
  /** How many layers share the group's slots and block table. */
  layers: number;
  kvHeads: number;
  headDim: number;
}

export interface Graph {
  readonly inputs: readonly InputValue[];
  /** In an order in which every value is made before it is used; the nodes of `forward` come before those of `sample`. */
  readonly nodes: readonly Node[];
  readonly groups: readonly CacheGroup[];
  readonly outputs: ReadonlyMap<string, Value>;
}

/** What the builder must know of a checkpoint's tensor. */
export interface CheckpointTensor {
  readonly dtype: string;
  readonly shape: readonly number[];
  /**
   * Where the rows lie if not simply in the tensor of the same name: GGUF readers give the file's own tensor name here, `ropeHeads`
   * for its permuted q/k, and `rowStart` for one expert's part of a stacked tensor.
   */
  readonly source?: Partial<Pick<RowSource, "tensor" | "ropeHeads" | "rowStart">>;
  /** The stored values already have 1 added (GGUF's gemma norms): the builder's `addOne` then adds nothing. */
  readonly oneAdded?: boolean;
}

/** Tensors by the name that architectures use (the Hugging Face names). */
export type Checkpoint = ReadonlyMap<string, CheckpointTensor>;

/** Rows of a weight seen as a matrix: every element of a vector is a row of its own. */
export function weightRows(shape: readonly number[]): number {
  return shape.length === 1 ? shape[0]! : shape.slice(0, -1).reduce((a, b) => a * b, 1);
}

/** Elements in one row of a weight. */
export function weightColumns(shape: readonly number[]): number {
  return shape.length === 1 ? 1 : shape.at(-1)!;
}
