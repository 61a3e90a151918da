// What architecture builders write against: one method per op (camelCase of the op's name), weights by checkpoint name,
// caches and outputs. A builder for a layer (`g.layers`) shares the graph and puts a prefix before weight names.
// Every method checks shapes at once: IX_MODEL_CONFIG names the node and the operand.
import { InferxError } from "../base/errors.ts";
import type {
  CacheOptions,
  CacheValue,
  Checkpoint,
  DataType,
  Dim,
  Graph,
  InputValue,
  Node,
  Program,
  Value,
  WeightValue,
} from "./graph.ts";
import { GraphState } from "./graph-state.ts";
import { activations } from "./ops/act.ts";
import { WeightScope } from "./weight-scope.ts";

export type Activation = "silu" | "gelu" | "gelu_tanh" | "relu" | "quick_gelu" | "sigmoid" | "tanh";

function kindOf(activation: Activation): number {
  const kind = activations.findIndex((a) => a.name === activation);
  if (kind < 0) throw new InferxError("IX_MODEL_CONFIG", `unknown activation "${activation}"`);
  return kind;
}

export interface AttentionOptions {
  /** Query heads. */
  heads: number;
  /** Factor of q·k, usually 1 / sqrt(head width). */
  scale: number;
  /** Newest positions that a query sees, itself included; default: the cache group's window (0 = all). */
  window?: number;
  /** cap * tanh(score / cap); default 0 = none. */
  softcap?: number;
  /** f32 [heads]: logits of a sink that takes part in the softmax and has no value. */
  sinks?: Value | undefined;
}

export interface RouteOptions {
  /** Experts per token. */
  top: number;
  /** How weights come from logits: softmax over all then top, top then softmax over those, sigmoid. Default "softmax". */
  scoring?: "softmax" | "top_softmax" | "sigmoid";
  /** Divide the chosen weights by their sum; default false. */
  renormalize?: boolean;
  /** Factor of the weights; default 1. */
  factor?: number;
}

const inputShapes = {
  tokens: ["T"],
  positions: ["T"],
  rope_row: ["T"],
  row_index: ["S"],
  seq_start: ["R"],
  seq_context: ["R"],
  seq_row: ["R"],
} as const satisfies Record<string, readonly Dim[]>;

export class Builder extends WeightScope {
  /** Number of the layer within `layers`; 0 outside. */
  readonly index: number;

  /** `createBuilder` makes the first one. */
  constructor(state: GraphState, prefix: string, index: number) {
    super(state, prefix);
    this.index = index;
  }

  // ---- structure

  /** A builder whose weight names begin with `<this prefix>.<name>`. */
  scope(name: string, index = 0): Builder {
    return new Builder(this.state, this.path(name), index);
  }

  /** One builder per layer, prefixes `<prefix>.0`, `<prefix>.1`, ... */
  layers(count: number, prefix: string): Builder[] {
    return Array.from({ length: count }, (_, i) => this.scope(`${prefix}.${i}`, i));
  }

  /** A value that the engine can read after the step: "logits" f32 [S, V], "hidden" f32 [S, D], ... */
  output(name: string, value: Value): Value {
    this.state.outputs.set(name, value);
    return value;
  }

  /** The graph so far. */
  finish(): Graph {
    return this.state.finish();
  }

  // ---- inputs of every graph

  /** i32 [T] token ids. */
  get tokens(): InputValue {
    return this.state.input("tokens");
  }
  /** i32 [T] absolute positions. */
  get positions(): InputValue {
    return this.state.input("positions");
  }
  /** i32 [T] row of inv_freq that a token's rotation uses (longrope); zeros otherwise. */
  get ropeRow(): InputValue {
    return this.state.input("rope_row");
  }
  /** i32 [S] rows of the step that get logits. */
  get rowIndex(): InputValue {
    return this.state.input("row_index");
  }

  /** A further input that the host stages at each step. */
  input(name: string, dtype: DataType, shape: readonly Dim[]): InputValue {
    return this.state.addInput(name, dtype, shape);
  }

  // ---- caches

  /** Declares a group of cache layers and gives each layer's cache in its first state; hand one to each layer's `kvWrite`. */
  cacheGroup(options: CacheOptions): CacheValue[] {
    return this.state.cacheGroup(options);
  }

  /** Stores k and v [T, KV heads * head width]; `attention` must be given the result. */
  kvWrite(cache: CacheValue, k: Value, v: Value): CacheValue {
    const slots = this.state.groups[cache.group]!.slots;
    return this.op("kv_write", [cache, k, v, slots])[0] as CacheValue;
  }

  /** q [T, heads * head width] over the cache, which holds this step's tokens already. */
  attention(q: Value, cache: CacheValue, options: AttentionOptions): Value {
    const { heads, scale, window, softcap = 0, sinks } = options;
    const group = this.state.groups[cache.group]!;
    const sequences = ["seq_start", "seq_context", "seq_row"].map((name) => this.state.input(name));
    const attrs = { heads, scale, window: window ?? group.window, softcap };
    return this.op("attention", [q, cache, ...sequences, group.blockTable, sinks], attrs)[0]!;
  }

  // ---- ops (docs/plan.md says what each computes)

  /** A small table of numbers that the plan carries. */
  constant(name: string, shape: readonly number[], data: ArrayLike<number>): Value {
    return { kind: "constant", name: this.path(name), dtype: "f32", shape, data: Float32Array.from(data) };
  }

  /** Rows of `w` [V, D]; ids i32 [T]. */
  embed(ids: Value, w: WeightValue): Value {
    return this.op("embed", [ids, w])[0]!;
  }

  /** x [T, K] times w [N, K] transposed, plus bias [N]. */
  linear(x: Value, w: WeightValue, bias?: WeightValue): Value {
    return this.op("linear", [x, w, bias], {}, w.name)[0]!;
  }

  /** `linear` with the checkpoint's `<name>.weight` and, if there is one, `<name>.bias`. */
  project(x: Value, name: string): Value {
    return this.linear(x, this.weight(name), this.biasOptional(name));
  }

  /** w [D / groups] or none; `groups` = heads for q/k norms. */
  rmsNorm(x: Value, w: WeightValue | undefined, eps: number, groups = 1): Value {
    return this.op("rms_norm", [x, w], { groups, eps }, w?.name)[0]!;
  }

  layerNorm(x: Value, w: WeightValue | undefined, b: WeightValue | undefined, eps: number, groups = 1): Value {
    return this.op("layer_norm", [x, w, b], { groups, eps }, w?.name)[0]!;
  }

  /** b may also be [1, D] or [T, 1], as in `mul`, `sub`, `div` and `max`. */
  add(a: Value, b: Value): Value {
    return this.op("add", [a, b])[0]!;
  }

  mul(a: Value, b: Value): Value {
    return this.op("mul", [a, b])[0]!;
  }

  /** x itself where factor is 1. */
  scale(x: Value, factor: number): Value {
    return factor === 1 ? x : this.op("scale", [x], { factor })[0]!;
  }

  /** cap * tanh(x / cap). */
  softcap(x: Value, cap: number): Value {
    return this.op("softcap", [x], { cap })[0]!;
  }

  act(x: Value, activation: Activation): Value {
    return this.op("act", [x], { kind: kindOf(activation) })[0]!;
  }

  /** act(gate) * up. */
  actMul(gate: Value, up: Value, activation: Activation): Value {
    return this.op("act_mul", [gate, up], { kind: kindOf(activation) })[0]!;
  }

  /** x holds per group F gates, then F ups; the result has groups * F columns. */
  gatedAct(x: Value, activation: Activation, groups = 1): Value {
    return this.op("gated_act", [x], { groups, kind: kindOf(activation) })[0]!;
  }

  /** Rows of x by i32 [S]. */
  gather(x: Value, rows: Value): Value {
    return this.op("gather", [x, rows])[0]!;
  }

  /** Columns `start` … `start + count - 1` of x: a view. */
  columns(x: Value, start: number, count: number): Value {
    return this.op("columns", [x], { start, count })[0]!;
  }

  concat(a: Value, b: Value): Value {
    return this.op("concat", [a, b])[0]!;
  }

  /**
   * Cosines and sines [T, 2H] of this step's positions. `invFreq`: P rows of H inverse frequencies (usually one row; `ropeRow` picks),
   * `factor`: one per row, default 1. Make one per distinct table, not one per layer.
   */
  ropeTable(invFreq: readonly ArrayLike<number>[], factor: readonly number[] = invFreq.map(() => 1)): Value {
    const rows = invFreq.map((row) => Array.from(row));
    const table = this.constant("inv_freq", [rows.length, rows[0]?.length ?? 0], rows.flat());
    return this.op("rope_table", [
      this.positions,
      this.ropeRow,
      table,
      this.constant("rope_factor", [rows.length], factor),
    ])[0]!;
  }

  /** Rotates the first 2H columns of every head; `interleaved` pairs (2i, 2i+1), default pairs (i, i + H). */
  rope(x: Value, table: Value, heads: number, interleaved = false): Value {
    return this.op("rope", [x, table], { heads, interleaved: Number(interleaved) })[0]!;
  }

  /** From router logits [T, E]: experts i32 [T, k] and weights f32 [T, k]. */
  moeRoute(logits: Value, options: RouteOptions): [experts: Value, weights: Value] {
    const { top, scoring = "softmax", renormalize = false, factor = 1 } = options;
    const kind = ["softmax", "top_softmax", "sigmoid"].indexOf(scoring);
    return this.op("moe_route", [logits], { top, scoring: kind, renormalize: Number(renormalize), factor }) as [
      Value,
      Value,
    ];
  }

  /** w [E, N, K]. x is [T, K], or with `perSlot` [T, k * K] (each slot's own input). Result [T, k * N]. */
  moeLinear(x: Value, experts: Value, w: WeightValue, perSlot = false): Value {
    return this.op("moe_linear", [x, experts, w], { per_slot: Number(perSlot) }, w.name)[0]!;
  }

  /** Weighted sum over the k slots of y [T, k * D]. */
  moeCombine(y: Value, weights: Value): Value {
    return this.op("moe_combine", [y, weights])[0]!;
  }

  /** Slow primitives of one operand. */
  primitive(
    op: "exp" | "neg" | "recip" | "sqrt" | "rsqrt" | "tanh" | "reduce_sum" | "reduce_max" | "softmax",
    x: Value,
  ): Value {
    return this.op(op, [x])[0]!;
  }

  /** Slow primitives of two operands. */
  primitive2(op: "sub" | "div" | "max", a: Value, b: Value): Value {
    return this.op(op, [a, b])[0]!;
  }

  /** Any op by its name: operands in the signature's order, scalars by name. */
  op(
    op: string,
    operands: Node["operands"],
    attrs: Node["attrs"] = {},
    name = this.path(op),
    program: Program = "forward",
  ): Value[] {
    return this.state.append({ op, operands, attrs, name, program });
  }
}

/** A builder for a model with these tensors. */
export function createBuilder(checkpoint: Checkpoint): Builder {
  const state = new GraphState(checkpoint);
  for (const [name, shape] of Object.entries(inputShapes)) state.addInput(name, "i32", shape);
  return new Builder(state, "", 0);
}
