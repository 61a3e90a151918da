// The configuration that decoder-only models have in common, and what follows from it for every layer: head shape, window, cache, rotation.
// Not here: the blocks that compute (blocks.ts).
import { InferxError } from "../base/errors.ts";
import type { Activation, Builder, RouteOptions } from "../ir/builder.ts";
import type { CacheValue, Value } from "../ir/graph.ts";
import { bool, float, int, intWithin, list, refuseConfig, string, type Values } from "./config.ts";
import { type RopeConfig, ropeFrequencies, ropeKeys } from "./rope.ts";

/** Bounds what a hostile config can make a builder allocate. */
export const maxLayers = 4096;
const maxHeadDim = 4096;

const headKeys = {
  hidden_size: int,
  num_hidden_layers: intWithin(1, maxLayers),
  num_attention_heads: int,
  num_key_value_heads: int.optional,
  head_dim: int.optional,
};

/** Which layers look at a window: `layer_types` says, else all do where there is a `sliding_window`. */
const windowKeys = { sliding_window: int.optional, layer_types: list(string).optional };

/** Keys of most decoders; an architecture spreads them into its own and overrides what differs. */
export const decoderKeys = {
  ...headKeys,
  ...ropeKeys,
  vocab_size: int.optional,
  hidden_act: string.default("silu"),
  rms_norm_eps: float.default(1e-6),
  tie_word_embeddings: bool.optional,
};

/** Those of decoders of which some layers may look at a window only. */
export const windowDecoderKeys = { ...decoderKeys, ...windowKeys };

export interface HeadShape {
  heads: number;
  kvHeads: number;
  headDim: number;
}

/** Errors: IX_MODEL_CONFIG when the sizes contradict each other. */
export function headShape(c: Values<Omit<typeof headKeys, "num_hidden_layers">>): HeadShape {
  const { hidden_size: hidden, num_attention_heads: heads } = c;
  const kvHeads = c.num_key_value_heads ?? heads;
  if (heads % kvHeads !== 0)
    refuseConfig("num_key_value_heads", kvHeads, `a divisor of num_attention_heads (${heads})`);
  if (c.head_dim === undefined && hidden % heads !== 0) {
    refuseConfig("num_attention_heads", heads, `a divisor of hidden_size (${hidden}) where there is no head_dim`);
  }
  const headDim = c.head_dim ?? hidden / heads;
  if (headDim > maxHeadDim) refuseConfig("head_dim", headDim, `at most ${maxHeadDim}`);
  return { heads, kvHeads, headDim };
}

/** For each layer the number of newest positions that it sees, 0 = all. Errors: IX_MODEL_CONFIG. */
export function layerWindows(c: Values<typeof windowKeys> & { num_hidden_layers: number }): number[] {
  const { num_hidden_layers: depth, sliding_window: window, layer_types: types } = c;
  if (!types) return Array<number>(depth).fill(window ?? 0);
  if (types.length !== depth) refuseConfig("layer_types", types.length, `a list of num_hidden_layers (${depth}) items`);
  return types.map((type, i) => {
    if (type === "full_attention") return 0;
    if (type !== "sliding_attention")
      refuseConfig(`layer_types[${i}]`, type, `"full_attention" or "sliding_attention"`);
    return (
      window ?? refuseConfig("sliding_window", undefined, "an integer of at least 1 where layer_types has windows")
    );
  });
}

/** One cache per layer; layers of the same window share a group. */
export function layerCaches(g: Builder, windows: readonly number[], shape: HeadShape): CacheValue[] {
  const { kvHeads, headDim } = shape;
  const free = new Map(
    [...new Set(windows)].map((window) => {
      const layers = windows.filter((w) => w === window).length;
      return [window, g.cacheGroup({ kind: window === 0 ? "full" : "window", window, layers, kvHeads, headDim })];
    }),
  );
  return windows.map((window) => free.get(window)!.shift()!);
}

/** A step's cosines and sines, and how columns pair up. */
export interface Rotation {
  table: Value; // f32 [T, 2H]
  /** Pairs (2i, 2i + 1) instead of (i, i + H). */
  interleaved: boolean;
}

export function rotation(g: Builder, c: RopeConfig, headDim: number, interleaved = false): Rotation {
  const { invFreq, factor } = ropeFrequencies(c, headDim);
  return { table: g.ropeTable(invFreq, factor), interleaved };
}

/** What the attention of one layer needs besides weights. */
export interface LayerAttention extends HeadShape {
  cache: CacheValue;
  rope: Rotation | undefined;
}

/** That of all layers, the usual way: one rotation for all, caches by window (0 = the layer sees everything). */
export function attentionLayers(
  g: Builder,
  c: Values<typeof decoderKeys> & Partial<Values<typeof windowKeys>>,
  interleaved = false,
): (LayerAttention & { window: number })[] {
  const shape = headShape(c);
  const rope = rotation(g, c, shape.headDim, interleaved);
  const windows = layerWindows({ sliding_window: undefined, layer_types: undefined, ...c });
  return layerCaches(g, windows, shape).map((cache, i) => ({ ...shape, cache, rope, window: windows[i]! }));
}

/** Keys of models of which some layers have a mixture of experts in place of the MLP. */
export const sparseKeys = {
  num_experts: int,
  num_experts_per_tok: int,
  norm_topk_prob: bool.default(false),
  /** Layers without experts; of the others every `decoder_sparse_step`-th has them. */
  mlp_only_layers: list(intWithin(0)).default([]),
  decoder_sparse_step: int.default(1),
};

export function isSparse(c: Values<typeof sparseKeys>, layer: number): boolean {
  return !c.mlp_only_layers.includes(layer) && (layer + 1) % c.decoder_sparse_step === 0;
}

export function routeOf(c: Values<typeof sparseKeys>): RouteOptions {
  return { top: c.num_experts_per_tok, renormalize: c.norm_topk_prob };
}

const activationNames: Record<string, Activation> = {
  silu: "silu",
  swish: "silu",
  gelu: "gelu",
  gelu_new: "gelu_tanh",
  gelu_fast: "gelu_tanh",
  gelu_pytorch_tanh: "gelu_tanh",
  relu: "relu",
  quick_gelu: "quick_gelu",
  sigmoid: "sigmoid",
  tanh: "tanh",
};

/** The activation that a configuration names. Errors: IX_UNSUPPORTED_ARCHITECTURE. */
export function activation(name: string): Activation {
  if (Object.hasOwn(activationNames, name)) return activationNames[name]!;
  const known = Object.keys(activationNames);
  throw new InferxError("IX_UNSUPPORTED_ARCHITECTURE", `unknown activation "${name}"; known are ${known.join(", ")}`, {
    name,
    known,
  });
}
