// The parts that architectures are made of. A block never learns which architecture called it: what varies is an option with a
// meaning, or another block. Weight names are those of most Hugging Face checkpoints unless weights are passed in.
import { InferxError } from "../base/errors.ts";
import type { Activation, Builder, RouteOptions } from "../ir/builder.ts";
import type { Value, WeightValue } from "../ir/graph.ts";
import { refuseConfig } from "./config.ts";
import type { LayerAttention } from "./decoder.ts";

/** A matrix [N, K] and perhaps a bias [N]. */
export interface Dense {
  weight: WeightValue;
  bias: WeightValue | undefined;
}

/** The checkpoint's `<name>.weight` and bias. `bias`: it must be there, must not be used, or (undefined) is used if it is there. */
export function dense(l: Builder, name: string, bias?: boolean): Dense {
  return {
    weight: l.weight(name),
    bias: bias === undefined ? l.biasOptional(name) : bias ? l.weight(`${name}.bias`) : undefined,
  };
}

/** `rows` of a matrix and its bias as matrices of their own. Errors: IX_MODEL_CONFIG when they are not all rows. */
export function splitRows(l: Builder, { weight, bias }: Dense, rows: readonly number[]): Dense[] {
  if (rows.reduce((sum, count) => sum + count, 0) !== weight.shape[0]) {
    const message = `${weight.name} has ${weight.shape[0]} rows, the configuration says ${rows.join(" + ")}`;
    throw new InferxError("IX_MODEL_CONFIG", message, { tensor: weight.name, rows });
  }
  let end = 0;
  return rows.map((count) => {
    const start = end;
    end += count;
    return { weight: l.sliceRows(weight, start, count), bias: bias && l.sliceRows(bias, start, count) };
  });
}

/** A vector as a matrix of one row, which `mul` and `add` repeat. */
export function asRow(w: WeightValue): WeightValue {
  const columns = w.shape.reduce((a, b) => a * b, 1);
  return { ...w, shape: [1, columns], sources: w.sources.map((source) => ({ ...source, rowCount: 1 })) };
}

export function apply(l: Builder, x: Value, { weight, bias }: Dense): Value {
  return l.linear(x, weight, bias);
}

/** Root-mean-square norm with the weight `<name>`. */
export function rms(l: Builder, x: Value, name: string, eps: number): Value {
  return l.rmsNorm(x, l.weight(name), eps);
}

/** The same with a weight that is stored as the difference to 1. */
export function rmsPlusOne(l: Builder, x: Value, name: string, eps: number): Value {
  return l.rmsNorm(x, l.addOne(l.weight(name)), eps);
}

/** Layer norm with the weight and, if there is one, the bias `<name>`. */
export function layerNorm(l: Builder, x: Value, name: string, eps: number): Value {
  return l.layerNorm(x, l.weight(name), l.biasOptional(name), eps);
}

/** Rows of the token table [V, D]. Errors: IX_MODEL_CONFIG when the config gives it other sizes. */
export function embedding(
  g: Builder,
  name: string,
  c: { vocab_size?: number | undefined; hidden_size: number },
): Value {
  const table = g.weight(name);
  const [rows, columns] = table.shape;
  if (columns !== c.hidden_size) refuseConfig("hidden_size", c.hidden_size, `${columns}, the width of ${table.name}`);
  if (c.vocab_size !== undefined && c.vocab_size !== rows)
    refuseConfig("vocab_size", c.vocab_size, `${rows}, the rows of ${table.name}`);
  return g.embed(g.tokens, table);
}

/** The matrices of an attention: heads * headDim, kvHeads * headDim (twice) and hidden rows. */
export interface Projections {
  q: Dense;
  k: Dense;
  v: Dense;
  out: Dense;
}

/** `<name>.{q,k,v,o}_proj`; biases as in `dense`. */
export function separateProjections(
  l: Builder,
  bias?: { qkv?: boolean | undefined; out?: boolean | undefined },
  name = "self_attn",
): Projections {
  const [q, k, v] = ["q_proj", "k_proj", "v_proj"].map((part) => dense(l, `${name}.${part}`, bias?.qkv)) as [
    Dense,
    Dense,
    Dense,
  ];
  return { q, k, v, out: dense(l, `${name}.o_proj`, bias?.out) };
}

/** q, k and v stacked in one matrix, in this order. */
export function packedProjections(
  l: Builder,
  qkv: Dense,
  out: Dense,
  { heads, kvHeads, headDim }: LayerAttention,
): Projections {
  const [q, k, v] = splitRows(l, qkv, [heads * headDim, kvHeads * headDim, kvHeads * headDim]) as [Dense, Dense, Dense];
  return { q, k, v, out };
}

/** RMS norms of q and k before rotation: w as wide as one head norms every head by itself, a wider one all columns together. */
export interface QkNorm {
  q: WeightValue;
  k: WeightValue;
  eps: number;
}

/** With the weights `<name>.{q,k}_norm`. */
export function qkNorms(l: Builder, eps: number, name = "self_attn"): QkNorm {
  return { q: l.weight(`${name}.q_norm`), k: l.weight(`${name}.k_norm`), eps };
}

/** The same with weights that are stored as the difference to 1. */
export function qkNormsPlusOne(l: Builder, eps: number, name = "self_attn"): QkNorm {
  const { q, k } = qkNorms(l, eps, name);
  return { q: l.addOne(q), k: l.addOne(k), eps };
}

export interface AttentionBlock extends LayerAttention {
  /** Default: `separateProjections(l)`. */
  projections?: Projections;
  qkNorm?: QkNorm;
  /** Factor of q·k; default 1 / sqrt(headDim). */
  scale?: number;
  /** cap * tanh(score / cap); default none. */
  softcap?: number | undefined;
  /** f32 [heads]: logits of attention sinks. */
  sinks?: WeightValue;
}

/** Attention over the layer's cache: x f32 [T, D] (normed) -> f32 [T, D]. */
export function attention(l: Builder, x: Value, options: AttentionBlock): Value {
  const { heads, kvHeads, headDim, cache, rope, qkNorm, softcap = 0, sinks } = options;
  const { q, k, v, out } = options.projections ?? separateProjections(l);
  const prepared = (projection: Dense, count: number, w: WeightValue | undefined): Value => {
    let y = apply(l, x, projection);
    if (w) y = l.rmsNorm(y, w, qkNorm!.eps, w.shape[0] === headDim ? count : 1);
    return rope ? l.rope(y, rope.table, count, rope.interleaved) : y;
  };
  const query = prepared(q, heads, qkNorm?.q);
  const key = prepared(k, kvHeads, qkNorm?.k);
  const written = l.kvWrite(cache, key, apply(l, x, v));
  const scale = options.scale ?? headDim ** -0.5;
  return apply(l, l.attention(query, written, { heads, scale, softcap, sinks }), out);
}

/** down(act(gate(x)) * up(x)), weights `<name>.{gate,up,down}_proj`. */
export function gatedMlp(l: Builder, x: Value, act: Activation, name = "mlp", bias?: boolean): Value {
  const [gate, up, down] = ["gate_proj", "up_proj", "down_proj"].map((part) => dense(l, `${name}.${part}`, bias)) as [
    Dense,
    Dense,
    Dense,
  ];
  return apply(l, l.actMul(apply(l, x, gate), apply(l, x, up), act), down);
}

/** The same with gate above up in one matrix. */
export function packedGatedMlp(l: Builder, x: Value, act: Activation, gateUp: Dense, down: Dense): Value {
  return apply(l, l.gatedAct(apply(l, x, gateUp), act), down);
}

/** second(act(first(x))). */
export function plainMlp(l: Builder, x: Value, act: Activation, first: Dense, second: Dense): Value {
  return apply(l, l.act(apply(l, x, first), act), second);
}

/** A mixture of gated MLPs. */
export interface MoeBlock {
  router: WeightValue; // [E, D]
  /** Gate above up of each expert. */
  gateUp: WeightValue; // [E, 2F, D]
  down: WeightValue; // [E, D, F]
  act: Activation;
  route: RouteOptions;
}

/** Every token through its `route.top` experts: x f32 [T, D] -> f32 [T, D]. */
export function moe(l: Builder, x: Value, { router, gateUp, down, act, route }: MoeBlock): Value {
  const [experts, weights] = l.moeRoute(l.linear(x, router), route);
  const hidden = l.gatedAct(l.moeLinear(x, experts, gateUp), act, route.top);
  return l.moeCombine(l.moeLinear(hidden, experts, down, true), weights);
}

export interface HeadOptions {
  tie_word_embeddings?: boolean | undefined;
  /** cap * tanh(logit / cap); default none. */
  softcap?: number | undefined;
  /** Factor of the logits; default 1. */
  scale?: number;
}

/**
 * Logits f32 [S, V] of normed rows f32 [S, D], which become the output "hidden". Tied to the token table where the config says so,
 * or is silent and the checkpoint has no `lm_head`.
 */
export function lmHead(g: Builder, x: Value, options: HeadOptions, table = "model.embed_tokens"): Value {
  const { tie_word_embeddings: tied = !g.has("lm_head"), softcap, scale = 1 } = options;
  const hidden = g.output("hidden", x);
  const head = tied ? { weight: g.weight(table), bias: undefined } : dense(g, "lm_head");
  const logits = g.scale(apply(g, hidden, head), scale);
  return softcap ? g.softcap(logits, softcap) : logits;
}
