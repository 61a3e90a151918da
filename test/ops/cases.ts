// One table of op cases: each a small graph with random inputs and weights. The reference evaluation, the kernels of a device
// (through plan and executor) and benches run the same table.
import { type Builder, createBuilder } from "../../lib/ir/builder.ts";
import type { CheckpointTensor, DataType, Dim, Graph, Value, WeightValue } from "../../lib/ir/graph.ts";
import { createCaches, interpret } from "../../lib/ir/interpret.ts";
import type { Tensor } from "../../lib/ir/ops/op.ts";

export interface OpCase {
  /** "linear: one row" */
  name: string;
  op: string;
  graph: Graph;
  /** The checkpoint's tensors, f32. */
  tensors: ReadonlyMap<string, Tensor>;
  /** The staged inputs of one step. */
  inputs: ReadonlyMap<string, Tensor>;
}

/** T, R and S of the cases' steps. */
export const sizes = { T: 7, R: 3, S: 4 } as const;
export const blockTokens = 32;
export const blocks = 8;

/** Numbers in [0, 1) that depend on nothing but the seed (mulberry32). */
export function randomNumbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** What a case's function is given: makers of operands. */
export class CaseBuilder {
  readonly g: Builder;
  readonly tensors = new Map<string, Tensor>();
  readonly inputs = new Map<string, Tensor>();
  readonly #random: () => number;
  readonly #checkpoint = new Map<string, CheckpointTensor>();

  constructor(seed: number) {
    this.#random = randomNumbers(seed);
    this.g = createBuilder(this.#checkpoint);
    const { T, R, S } = sizes;
    // three sequences of 1, 2 and 4 new tokens, with contexts of 40, 2 and 9
    this.#set("seq_start", [R + 1], Int32Array.of(0, 1, 3, 7));
    this.#set("seq_context", [R], Int32Array.of(40, 2, 9));
    this.#set("seq_row", [R], Int32Array.of(2, 0, 1));
    this.#set("positions", [T], Int32Array.of(39, 0, 1, 5, 6, 7, 8));
    this.#set("tokens", [T], Int32Array.of(3, 0, 7, 1, 2, 10, 4));
    this.#set("rope_row", [T], new Int32Array(T));
    this.#set("row_index", [S], Int32Array.of(6, 0, 2, 2));
  }

  #set(name: string, dims: readonly number[], data: Tensor["data"]): void {
    this.inputs.set(name, { dims, data });
  }

  /** Uniform within ±1, roughly of variance 1/3. */
  floats(count: number): Float32Array {
    return Float32Array.from({ length: count }, () => 2 * this.#random() - 1);
  }

  /** f32 [T, columns]. */
  rows(columns: number, change: (value: number) => number = (v) => v): Value {
    return this.input("f32", ["T", columns], this.floats(sizes.T * columns).map(change));
  }

  input(dtype: DataType, shape: readonly Dim[], data: Tensor["data"]): Value {
    const name = `input.${this.inputs.size}`;
    this.#set(
      name,
      shape.map((dim) => (typeof dim === "number" ? dim : sizes[dim as "T"])),
      data,
    );
    return this.g.input(name, dtype, shape);
  }

  ints(columns: number, least: number, most: number): Value {
    const data = Int32Array.from(
      { length: sizes.T * columns },
      () => least + Math.floor(this.#random() * (most - least + 1)),
    );
    return this.input("i32", ["T", columns], data);
  }

  weight(...shape: number[]): WeightValue {
    return this.stored("f32", shape, this.floats(shape.reduce((a, b) => a * b)));
  }

  /** A weight whose checkpoint stores `data` in another dtype. */
  stored(
    dtype: string,
    shape: readonly number[],
    data: Float32Array,
    more: Partial<CheckpointTensor> = {},
  ): WeightValue {
    const name = `weight.${this.tensors.size}`;
    this.tensors.set(name, { dims: shape, data });
    this.#checkpoint.set(name, { dtype, shape, ...more });
    return this.g.weight(name);
  }

  bytes(count: number): Uint8Array {
    return Uint8Array.from({ length: count }, () => Math.floor(256 * this.#random()));
  }

  /**
   * A cache layer that this step's tokens go to, and tokens before it from an earlier pass of the same node: the sequences' blocks are
   * 5, 2 (row 2), 0 (row 0) and 7 (row 1); slots of this step follow from the positions.
   */
  cache(kvHeads: number, headDim: number, window = 0) {
    const kind = window > 0 ? "window" : "full";
    const [cache] = this.g.cacheGroup({ kind, layers: 1, kvHeads, headDim, ...(window > 0 ? { window } : {}) });
    this.#set("block_table.0", [3, 2], Int32Array.of(0, -1, 7, -1, 5, 2));
    const slots = [2 * blockTokens + 7, 0, 1, 5, 6, 7, 8].map((slot, t) => (t > 2 ? 7 * blockTokens + slot : slot));
    this.#set("slots.0", [sizes.T], Int32Array.from(slots));
    return cache!;
  }
}

export type Make = (c: CaseBuilder) => Value | readonly Value[];

const all: readonly (readonly [op: string, detail: string, make: Make])[] = [
  ["embed", "odd width", (c) => c.g.embed(c.g.tokens, c.weight(11, 45))],
  ["linear", "odd sizes, bias", (c) => c.g.linear(c.rows(45), c.weight(37, 45), c.weight(37))],
  ["linear", "one row of output", (c) => c.g.linear(c.rows(256), c.weight(1, 256))],
  ["linear", "several panels", (c) => c.g.linear(c.rows(512), c.weight(100, 512))],
  ["linear", "of a view", (c) => c.g.linear(c.g.columns(c.g.add(c.rows(100), c.rows(100)), 33, 45), c.weight(37, 45))],
  ["rms_norm", "whole rows", (c) => c.g.rmsNorm(c.rows(45), c.weight(45), 1e-5)],
  ["rms_norm", "without weight", (c) => c.g.rmsNorm(c.rows(96), undefined, 1e-6)],
  ["rms_norm", "three heads", (c) => c.g.rmsNorm(c.rows(96), c.weight(32), 1e-6, 3)],
  [
    "layer_norm",
    "whole rows",
    (c) =>
      c.g.layerNorm(
        c.rows(45, (v) => v + 5),
        c.weight(45),
        c.weight(45),
        1e-5,
      ),
  ],
  ["layer_norm", "two heads, no bias", (c) => c.g.layerNorm(c.rows(46), c.weight(23), undefined, 1e-5, 2)],
  ["add_rms_norm", "odd width", (c) => c.g.op("add_rms_norm", [c.rows(45), c.rows(45), c.weight(45)], { eps: 1e-5 })],
  ["add", "equal shapes", (c) => c.g.add(c.rows(45), c.rows(45))],
  ["add", "one row", (c) => c.g.add(c.rows(45), c.g.constant("row", [1, 45], c.floats(45)))],
  ["mul", "equal shapes", (c) => c.g.mul(c.rows(45), c.rows(45))],
  ["mul", "one column", (c) => c.g.mul(c.rows(45), c.rows(1))],
  ["scale", "odd width", (c) => c.g.scale(c.rows(45), 0.3)],
  [
    "softcap",
    "odd width",
    (c) =>
      c.g.softcap(
        c.rows(45, (v) => 60 * v),
        30,
      ),
  ],
  ...(["silu", "gelu", "gelu_tanh", "relu", "quick_gelu", "sigmoid", "tanh"] as const).flatMap((kind) => [
    [
      "act",
      kind,
      (c: CaseBuilder) =>
        c.g.act(
          c.rows(45, (v) => 6 * v),
          kind,
        ),
    ] as const,
    [
      "act_mul",
      kind,
      (c: CaseBuilder) =>
        c.g.actMul(
          c.rows(45, (v) => 6 * v),
          c.rows(45),
          kind,
        ),
    ] as const,
  ]),
  ["gated_act", "one group", (c) => c.g.gatedAct(c.rows(90), "silu")],
  ["gated_act", "three groups", (c) => c.g.gatedAct(c.rows(3 * 2 * 17), "gelu_tanh", 3)],
  ["gather", "repeated rows", (c) => c.g.gather(c.rows(45), c.g.rowIndex)],
  ["rope_table", "one variant", (c) => c.g.ropeTable([[1, 0.1, 0.01]])],
  [
    "rope_table",
    "factor",
    (c) =>
      c.g.ropeTable(
        [
          [1, 0.31],
          [0.5, 0.1],
        ],
        [1.25, 2],
      ),
  ],
  ["rope", "halves", (c) => c.g.rope(c.rows(96), c.g.ropeTable([[1, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 3e-4]]), 6)],
  ["rope", "pairs, partial", (c) => c.g.rope(c.rows(96), c.g.ropeTable([[1, 0.1, 0.01]]), 4, true)],
  [
    "rope",
    "of a view",
    (c) => c.g.rope(c.g.columns(c.g.scale(c.rows(100), 2), 3, 96), c.g.ropeTable([[1, 0.1, 0.01]]), 4),
  ],
  ["attention", "grouped heads", attentionCase(4, 2, 16, {})],
  ["attention", "odd: three heads of 20, softcap", attentionCase(3, 3, 20, { softcap: 5 })],
  ["attention", "window", attentionCase(4, 1, 32, { window: 4 })],
  ["attention", "sinks", attentionCase(2, 1, 64, { sinks: true })],
  ["attention", "eight heads of 128 on one", attentionCase(8, 1, 128, {})],
  ["attention", "wide: six heads of 256 on two", attentionCase(6, 2, 256, { window: 20, softcap: 30 })],
  ["qk_norm_rope_kv_write", "norms", fusedCase(true)],
  ["qk_norm_rope_kv_write", "no norms", fusedCase(false)],
  [
    "moe_route",
    "softmax, renormalised",
    (c) =>
      c.g.moeRoute(
        c.rows(9, (v) => 4 * v),
        { top: 3, renormalize: true },
      ),
  ],
  ["moe_route", "softmax", (c) => c.g.moeRoute(c.rows(9), { top: 2, factor: 2.5 })],
  ["moe_route", "top, then softmax", (c) => c.g.moeRoute(c.rows(9), { top: 4, scoring: "top_softmax" })],
  ["moe_route", "sigmoid", (c) => c.g.moeRoute(c.rows(9), { top: 4, scoring: "sigmoid", renormalize: true })],
  [
    "moe_route",
    "ties",
    (c) =>
      c.g.moeRoute(
        c.rows(9, () => 0.5),
        { top: 3 },
      ),
  ],
  [
    "moe_route",
    "ties among many experts",
    (c) =>
      c.g.moeRoute(
        c.rows(70, (v) => Math.round(2 * v)),
        { top: 8, renormalize: true },
      ),
  ],
  ["moe_linear", "shared input", (c) => c.g.moeLinear(c.rows(45), c.ints(3, -1, 4), c.weight(5, 37, 45))],
  ["moe_linear", "input per slot", (c) => c.g.moeLinear(c.rows(90), c.ints(2, -1, 4), c.weight(5, 37, 45), true)],
  ["moe_linear", "all to one expert", (c) => c.g.moeLinear(c.rows(64), c.ints(3, 2, 2), c.weight(4, 70, 64))],
  ["moe_linear", "one expert or none", (c) => c.g.moeLinear(c.rows(128), c.ints(2, -1, 0), c.weight(3, 16, 64), true)],
  ["moe_linear", "many experts", (c) => c.g.moeLinear(c.rows(33), c.ints(8, 0, 39), c.weight(40, 9, 33))],
  ["moe_combine", "two slots, whole lines", (c) => c.g.moeCombine(c.rows(2 * 64), c.rows(2))],
  ["moe_combine", "three slots", (c) => c.g.moeCombine(c.rows(3 * 45), c.rows(3))],
  ...(["exp", "neg", "tanh", "reduce_sum", "reduce_max", "softmax"] as const).map(
    (op) => [op, "odd width", (c: CaseBuilder) => c.g.primitive(op, c.rows(45))] as const,
  ),
  ...(["recip", "sqrt", "rsqrt"] as const).map(
    (op) =>
      [
        op,
        "odd width",
        (c: CaseBuilder) =>
          c.g.primitive(
            op,
            c.rows(45, (v) => Math.abs(v) + 0.1),
          ),
      ] as const,
  ),
  ...(["sub", "div", "max"] as const).flatMap((op) => [
    [
      op,
      "equal shapes",
      (c: CaseBuilder) =>
        c.g.primitive2(
          op,
          c.rows(45),
          c.rows(45, (v) => v + 2),
        ),
    ] as const,
    [
      op,
      "one column",
      (c: CaseBuilder) =>
        c.g.primitive2(
          op,
          c.rows(45),
          c.rows(1, (v) => v + 2),
        ),
    ] as const,
  ]),
  ["concat", "odd widths", (c) => c.g.concat(c.rows(45), c.rows(7))],
];

/** kv_write and attention: the context before this step is whatever the caches hold. */
function attentionCase(
  heads: number,
  kvHeads: number,
  headDim: number,
  more: { softcap?: number; window?: number; sinks?: boolean },
): Make {
  return (c) => {
    const { softcap = 0, window = 0, sinks } = more;
    const cache = c.g.kvWrite(c.cache(kvHeads, headDim, window), c.rows(kvHeads * headDim), c.rows(kvHeads * headDim));
    const options = { heads, scale: headDim ** -0.5, softcap, sinks: sinks ? c.weight(heads) : undefined };
    return c.g.attention(c.rows(heads * headDim), cache, options);
  };
}

function fusedCase(norms: boolean): Make {
  return (c) => {
    const [heads, kvHeads, headDim] = [4, 2, 24];
    const cache = c.cache(kvHeads, headDim);
    const table = c.g.ropeTable([[1, 0.3, 0.1, 0.03, 0.01]]);
    const [q, k, v] = [heads, kvHeads, kvHeads].map((n) => c.rows(n * headDim));
    const weights = norms ? [c.weight(headDim), c.weight(headDim)] : [undefined, undefined];
    const group = c.g.finish().groups[0]!;
    const attrs = { heads, interleaved: Number(!norms), eps: 1e-6 };
    const [rotated, written] = c.g.op("qk_norm_rope_kv_write", [cache, q, k, v, table, group.slots, ...weights], attrs);
    return [rotated!, c.g.attention(rotated!, written as typeof cache, { heads, scale: 0.2 })];
  };
}

export function opCase(op: string, detail: string, make: Make, seed = 1): OpCase {
  const c = new CaseBuilder(seed);
  [make(c)].flat().forEach((value, i) => {
    c.g.output(`out.${i}`, value as Value);
  });
  return { name: `${op}: ${detail}`, op, graph: c.g.finish(), tensors: c.tensors, inputs: c.inputs };
}

export function opCases(): OpCase[] {
  return all.map(([op, detail, make], i) => opCase(op, detail, make, i + 1));
}

/** What the reference evaluation gives, by output. */
export function referenceOutputs({ graph, tensors, inputs }: OpCase): Map<string, Tensor> {
  const tensor = (name: string) => tensors.get(name)!.data as Float32Array;
  return interpret(graph, { tensor, inputs, caches: createCaches(graph, blocks, blockTokens) });
}
