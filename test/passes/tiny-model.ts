// A small decoder, written by hand against the builder, with random weights, and a ragged batch to run it on.
import { createBuilder } from "../../lib/ir/builder.ts";
import type { CheckpointTensor, Graph } from "../../lib/ir/graph.ts";
import { type CacheTensors, createCaches, interpret } from "../../lib/ir/interpret.ts";
import type { Tensor } from "../../lib/ir/ops/op.ts";
import type { Limits } from "../../lib/passes/plan-memory.ts";
import { randomNumbers } from "../ops/cases.ts";

export const limits: Limits = {
  maxTokens: 64,
  maxSequences: 4,
  maxLogitRows: 8,
  maxRunning: 6,
  contextTokens: 128,
  blockTokens: 32,
  maxBias: 16,
};

export interface TinyOptions {
  qkNorm?: boolean;
  /** Biases of q and v, none of k. */
  bias?: boolean;
  tied?: boolean;
  /** Layer 1 sees 3 positions. */
  window?: boolean;
  /** dtypes by weight name; default f32. */
  dtypes?: Record<string, string>;
  experts?: boolean;
  /** Rows of q and k as GGUF's llama files have them. */
  ropeHeads?: boolean;
}

const [hidden, heads, kvHeads, headDim, ffn, vocabulary, layers, numExperts] = [32, 4, 2, 8, 64, 40, 2, 3] as const;

export interface TinyModel {
  graph: Graph;
  tensor: (name: string) => Float32Array;
}

export function tinyModel(options: TinyOptions = {}): TinyModel {
  const random = randomNumbers(7);
  const checkpoint = new Map<string, CheckpointTensor>();
  const data = new Map<string, Float32Array>();
  const add = (name: string, ...shape: number[]) => {
    const permuted = options.ropeHeads === true && /\.[qk]_proj\.weight$/.test(name);
    const source = permuted ? { ropeHeads: name.includes("q_proj") ? heads : kvHeads } : {};
    checkpoint.set(name, { dtype: options.dtypes?.[name] ?? "f32", shape, source });
    data.set(
      name,
      Float32Array.from({ length: shape.reduce((a, b) => a * b) }, () => random() - 0.5),
    );
  };
  add("embed.weight", vocabulary, hidden);
  for (let i = 0; i < layers; i++) {
    const l = `layers.${i}`;
    for (const norm of ["norm1", "norm2"]) add(`${l}.${norm}.weight`, hidden);
    for (const [name, rows] of [
      ["q", heads * headDim],
      ["k", kvHeads * headDim],
      ["v", kvHeads * headDim],
    ] as const) {
      add(`${l}.${name}_proj.weight`, rows, hidden);
      if (options.bias && name !== "k") add(`${l}.${name}_proj.bias`, rows);
    }
    if (options.qkNorm) for (const name of ["q_norm", "k_norm"]) add(`${l}.${name}.weight`, headDim);
    add(`${l}.o_proj.weight`, hidden, heads * headDim);
    const mlps = options.experts ? Array.from({ length: numExperts }, (_, e) => `${l}.experts.${e}`) : [l];
    for (const mlp of mlps) {
      add(`${mlp}.gate_proj.weight`, ffn, hidden);
      add(`${mlp}.up_proj.weight`, ffn, hidden);
      add(`${mlp}.down_proj.weight`, hidden, ffn);
    }
    if (options.experts) add(`${l}.router.weight`, numExperts, hidden);
  }
  add("norm.weight", hidden);
  if (!options.tied) add("lm_head.weight", vocabulary, hidden);

  const g = createBuilder(checkpoint);
  const full = g.cacheGroup({ kind: "full", layers: options.window ? 1 : 2, kvHeads, headDim });
  const window = options.window ? g.cacheGroup({ kind: "window", window: 3, layers: 1, kvHeads, headDim }) : [];
  const caches = [...full, ...window];
  const table = g.ropeTable([Array.from({ length: headDim / 2 }, (_, i) => 100 ** ((-2 * i) / headDim))]);
  let x = g.embed(g.tokens, g.weight("embed"));
  for (const l of g.layers(layers, "layers")) {
    const y = l.rmsNorm(x, l.addOne(l.weight("norm1")), 1e-5);
    let [q, k] = [l.project(y, "q_proj"), l.project(y, "k_proj")];
    if (options.qkNorm)
      [q, k] = [l.rmsNorm(q, l.weight("q_norm"), 1e-5, heads), l.rmsNorm(k, l.weight("k_norm"), 1e-5, kvHeads)];
    const cache = l.kvWrite(caches[l.index]!, l.rope(k, table, kvHeads), l.project(y, "v_proj"));
    x = l.add(x, l.project(l.attention(l.rope(q, table, heads), cache, { heads, scale: 0.3 }), "o_proj"));
    const z = l.rmsNorm(x, l.weight("norm2"), 1e-5);
    if (options.experts) {
      const [experts, weights] = l.moeRoute(l.project(z, "router"), { top: 2, renormalize: true });
      const h = l.gatedAct(
        l.moeLinear(z, experts, l.experts("experts", numExperts, ["gate_proj", "up_proj"])),
        "silu",
        2,
      );
      x = l.add(
        x,
        l.moeCombine(l.moeLinear(h, experts, l.experts("experts", numExperts, ["down_proj"]), true), weights),
      );
    } else {
      x = l.add(x, l.project(l.actMul(l.project(z, "gate_proj"), l.project(z, "up_proj"), "silu"), "down_proj"));
    }
  }
  const last = g.rmsNorm(g.gather(x, g.rowIndex), g.weight("norm"), 1e-5);
  g.output("logits", g.linear(last, g.weightOptional("lm_head") ?? g.weight("embed")));
  return { graph: g.finish(), tensor: (name) => data.get(name)! };
}

const i32 = (data: readonly number[], dims: readonly number[] = [data.length]): Tensor => ({
  dims,
  data: Int32Array.from(data),
});

/** Three steps of two sequences in scattered blocks; the logits of all rows asked for, one after another. */
export function runTiny(graph: Graph, tensor: TinyModel["tensor"]): number[] {
  const caches: CacheTensors = createCaches(graph, 3, limits.blockTokens);
  const firstBlock = [2, 0];
  const logits: number[] = [];
  const steps: readonly (readonly [new0: number, new1: number])[] = [
    [3, 0],
    [1, 4],
    [1, 1],
  ];
  const context = [0, 0];
  for (const counts of steps) {
    const rows = [0, 1].filter((r) => counts[r]! > 0);
    const positions = rows.flatMap((r) => Array.from({ length: counts[r]! }, (_, i) => context[r]! + i));
    const owners = rows.flatMap((r) => Array.from({ length: counts[r]! }, () => r));
    for (const r of rows) context[r]! += counts[r]!;
    const starts = [0];
    for (const r of rows) starts.push(starts.at(-1)! + counts[r]!);
    const inputs = new Map<string, Tensor>([
      ["tokens", i32(positions.map((p, t) => (7 * p + 3 * owners[t]!) % vocabulary))],
      ["positions", i32(positions)],
      ["rope_row", i32(positions.map(() => 0))],
      ["row_index", i32(starts.slice(1).map((end) => end - 1))],
      ["seq_start", i32(starts)],
      ["seq_context", i32(rows.map((r) => context[r]!))],
      ["seq_row", i32(rows)],
    ]);
    graph.groups.forEach((_, group) => {
      inputs.set(`slots.${group}`, i32(positions.map((p, t) => firstBlock[owners[t]!]! * limits.blockTokens + p)));
      inputs.set(`block_table.${group}`, i32(firstBlock, [2, 1]));
    });
    logits.push(...interpret(graph, { tensor, inputs, caches }).get("logits")!.data);
  }
  return logits;
}
