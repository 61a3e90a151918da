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

/** `self_attn.{q,k,v}_proj` and `self_attn.<out>`; biases as in `dense`. */
export function separateProjections(
  l: Builder,
  bias: { qkv?: boolean | undefined; out?: boolean | undefined } = {},
  out = "o_proj",
): Projections {
  const part = (name: string) => dense(l, `self_attn.${name}`, bias.qkv);
  return { q: part("q_proj"), k: part("k_proj"), v: part("v_proj"), out: dense(l, `self_attn.${out}`, bias.out) };
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

/** What q or k [T, heads * headDim] goes through before it is rotated. */
export type HeadNorm = (x: Value, heads: number, headDim: number) => Value;

/** RMS norm by a weight as wide as a head, every head by itself, or as wide as all of them, together. */
export function rmsHeads(l: Builder, w: WeightValue, eps: number): HeadNorm {
  return (x, heads, headDim) => l.rmsNorm(x, w, eps, w.shape[0] === headDim ? heads : 1);
}

export interface QkNorm {
  q: HeadNorm;
  k: HeadNorm;
}

/** RMS norms with the weights `self_attn.{q,k}_norm`. */
export function qkNorms(l: Builder, eps: number): QkNorm {
  return { q: rmsHeads(l, l.weight("self_attn.q_norm"), eps), k: rmsHeads(l, l.weight("self_attn.k_norm"), eps) };
}

/** The same with weights that are stored as the difference to 1. */
export function qkNormsPlusOne(l: Builder, eps: number): QkNorm {
  const weight = (part: string) => l.addOne(l.weight(`self_attn.${part}_norm`));
  return { q: rmsHeads(l, weight("q"), eps), k: rmsHeads(l, weight("k"), eps) };
}

export interface AttentionBlock extends LayerAttention {
  /** Default: `separateProjections(l)`. */
  projections?: Projections;
  qkNorm?: QkNorm;
  /** Factor of q·k; default 1 / sqrt(headDim). */
  scale?: number;
  /** cap * tanh(score / cap); default none. */
  softcap?: number | undefined;
}

/** Attention over the layer's cache: x f32 [T, D] (normed) -> f32 [T, D]. */
export function attention(l: Builder, x: Value, options: AttentionBlock): Value {
  const { heads, kvHeads, headDim, cache, rope, qkNorm, softcap = 0 } = options;
  const { q, k, v, out } = options.projections ?? separateProjections(l);
  const prepared = (projection: Dense, count: number, norm: HeadNorm = (y) => y): Value => {
    const y = norm(apply(l, x, projection), count, headDim);
    return rope ? l.rope(y, rope.table, count, rope.interleaved) : y;
  };
  const query = prepared(q, heads, qkNorm?.q);
  const key = prepared(k, kvHeads, qkNorm?.k);
  const written = l.kvWrite(cache, key, apply(l, x, v));
  const scale = options.scale ?? headDim ** -0.5;
  return apply(l, l.attention(query, written, { heads, scale, softcap }), out);
}

/** down(act(gate(x)) * up(x)), weights `<name>.{gate,up,down}_proj`. */
export function gatedMlp(l: Builder, x: Value, act: Activation, name = "mlp", bias?: boolean): Value {
  const part = (y: Value, which: string) => apply(l, y, dense(l, `${name}.${which}_proj`, bias));
  return part(l.actMul(part(x, "gate"), part(x, "up"), act), "down");
}

/** The same with gate above up in one matrix. */
export function packedGatedMlp(l: Builder, x: Value, act: Activation, gateUp: Dense, down: Dense): Value {
  return apply(l, l.gatedAct(apply(l, x, gateUp), act), down);
}

/** second(act(first(x))). */
export function plainMlp(l: Builder, x: Value, act: Activation, first: Dense, second: Dense): Value {
  return apply(l, l.act(apply(l, x, first), act), second);
}

/** The matrices of a mixture of gated MLPs. */
export interface MoeWeights {
  router: WeightValue; // [E, D]
  /** Gate above up of each expert. */
  gateUp: WeightValue; // [E, 2F, D]
  down: WeightValue; // [E, D, F]
}

/** `mlp.gate` and `mlp.experts.<e>.{gate,up,down}_proj`. */
export function moeWeights(l: Builder, count: number): MoeWeights {
  return {
    router: l.weight("mlp.gate"),
    gateUp: l.experts("mlp.experts", count, ["gate_proj", "up_proj"]),
    down: l.experts("mlp.experts", count, ["down_proj"]),
  };
}

export interface MoeBlock extends MoeWeights {
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
 * or is silent and the checkpoint has no output matrix.
 */
export function lmHead(
  g: Builder,
  x: Value,
  options: HeadOptions,
  table = "model.embed_tokens",
  head = "lm_head",
): Value {
  const { tie_word_embeddings: tied = !g.has(head), softcap, scale = 1 } = options;
  const hidden = g.output("hidden", x);
  const matrix = tied ? { weight: g.weight(table), bias: undefined } : dense(g, head);
  const logits = g.scale(apply(g, hidden, matrix), scale);
  return softcap ? g.softcap(logits, softcap) : logits;
}
