// From GGUF metadata to the config.json that the model would have: Hugging Face's class name and keys (4.x layout).
// One table per fact; a key that is missing and cannot be inferred is IX_MODEL_CONFIG.
import { InferxError } from "../base/errors.ts";
import type { GgufFile } from "./gguf.ts";
import type { GgufValue } from "./gguf-cursor.ts";
import { type HfConfig, normaliseHfConfig } from "./hf-config.ts";

/** Reads all values of a small f32 tensor. */
export type ReadFactors = (tensorName: string) => number[];

interface Architecture {
  className: string;
  modelType: string;
  /** Keys that GGUF does not hold because the architecture has one value for them. */
  fixed?: HfConfig;
  /** Further keys: `[config key, metadata key after the architecture's prefix]`, absent ones are left out. */
  optional?: [string, string][];
}

const gated: HfConfig = { hidden_act: "silu" };
const slidingWindow: [string, string] = ["sliding_window", "attention.sliding_window"];

const architectures: Record<string, Architecture> = {
  llama: { className: "LlamaForCausalLM", modelType: "llama", fixed: gated },
  mistral: { className: "MistralForCausalLM", modelType: "mistral", fixed: gated, optional: [slidingWindow] },
  mixtral: {
    className: "MixtralForCausalLM",
    modelType: "mixtral",
    fixed: gated,
    optional: [slidingWindow, ["num_local_experts", "expert_count"], ["num_experts_per_tok", "expert_used_count"]],
  },
  qwen2: { className: "Qwen2ForCausalLM", modelType: "qwen2", fixed: gated },
  qwen3: { className: "Qwen3ForCausalLM", modelType: "qwen3", fixed: gated },
  qwen3moe: {
    className: "Qwen3MoeForCausalLM",
    modelType: "qwen3_moe",
    fixed: { ...gated, norm_topk_prob: true, decoder_sparse_step: 1 },
    optional: [
      ["num_experts", "expert_count"],
      ["num_experts_per_tok", "expert_used_count"],
      ["moe_intermediate_size", "expert_feed_forward_length"],
    ],
  },
  gemma2: {
    className: "Gemma2ForCausalLM",
    modelType: "gemma2",
    fixed: { hidden_activation: "gelu_pytorch_tanh" },
    optional: [
      slidingWindow,
      ["attn_logit_softcapping", "attn_logit_softcapping"],
      ["final_logit_softcapping", "final_logit_softcapping"],
    ],
  },
  gemma3: {
    className: "Gemma3ForCausalLM",
    modelType: "gemma3_text",
    fixed: { hidden_activation: "gelu_pytorch_tanh", attn_logit_softcapping: null, final_logit_softcapping: null },
    optional: [
      slidingWindow,
      ["final_logit_softcapping", "final_logit_softcapping"],
      ["rope_local_base_freq", "rope.freq_base_swa"],
    ],
  },
  phi3: { className: "Phi3ForCausalLM", modelType: "phi3", fixed: gated, optional: [slidingWindow] },
  olmo2: { className: "Olmo2ForCausalLM", modelType: "olmo2", fixed: gated },
  smollm3: { className: "SmolLM3ForCausalLM", modelType: "smollm3", fixed: { ...gated, no_rope_layer_interval: 4 } },
};

/** The config of a GGUF file. Errors: IX_UNSUPPORTED_ARCHITECTURE, IX_MODEL_CONFIG naming the key. */
export function ggufConfig(gguf: GgufFile, readFactors: ReadFactors): HfConfig {
  const prefix = gguf.metadata.get("general.architecture");
  if (typeof prefix !== "string") throw missing("general.architecture");
  const keys = new Keys(gguf.metadata, prefix);
  if (prefix === "gpt2") return gpt2Config(gguf, keys);
  const architecture = architectures[llamaVariant(keys)];
  if (!architecture) {
    const known = [...Object.keys(architectures), "gpt2"].join(", ");
    throw new InferxError("IX_UNSUPPORTED_ARCHITECTURE", `GGUF architecture ${prefix} is not known (known: ${known})`, {
      architecture: prefix,
    });
  }
  const { className, modelType, fixed, optional = [] } = architecture;
  const hiddenSize = keys.need("embedding_length");
  const numLayers = keys.need("block_count");
  const numHeads = keys.need("attention.head_count");
  const headDim = keys.find("attention.key_length") ?? hiddenSize / numHeads;
  const config: HfConfig = {
    architectures: [className],
    model_type: modelType,
    ...fixed,
    hidden_size: hiddenSize,
    num_hidden_layers: numLayers,
    num_attention_heads: numHeads,
    num_key_value_heads: keys.find("attention.head_count_kv") ?? numHeads,
    head_dim: headDim,
    intermediate_size: keys.need("feed_forward_length"),
    rms_norm_eps: keys.need("attention.layer_norm_rms_epsilon"),
    max_position_embeddings: keys.need("context_length"),
    ...vocabulary(gguf),
    ...attentionBias(gguf),
    rope_theta: keys.find("rope.freq_base") ?? 10_000,
    rope_scaling: ropeScaling(keys, gguf, readFactors),
  };
  const ropeDim = keys.find("rope.dimension_count");
  if (ropeDim !== undefined && ropeDim !== headDim) config.partial_rotary_factor = ropeDim / headDim;
  for (const [key, from] of optional) {
    const value = keys.find(from);
    if (value !== undefined) config[key] = value;
  }
  if (prefix === "gemma2" || prefix === "gemma3") config.query_pre_attn_scalar = queryScalar(keys, config);
  if (prefix === "qwen3moe") {
    config.mlp_only_layers = layersWithout(gguf, numLayers, "ffn_gate_inp.weight");
    config.moe_intermediate_size ??= gguf.tensors.get("blk.0.ffn_gate_exps.weight")?.dims[1];
  }
  return normaliseHfConfig(config);
}

/** Mistral and Mixtral files call themselves llama. */
function llamaVariant(keys: Keys): string {
  if (keys.prefix !== "llama") return keys.prefix;
  if (keys.find("expert_count")) return "mixtral";
  return keys.find("attention.sliding_window") ? "mistral" : "llama";
}

function gpt2Config(gguf: GgufFile, keys: Keys): HfConfig {
  return normaliseHfConfig({
    architectures: ["GPT2LMHeadModel"],
    model_type: "gpt2",
    activation_function: "gelu_new",
    n_embd: keys.need("embedding_length"),
    n_layer: keys.need("block_count"),
    n_head: keys.need("attention.head_count"),
    n_inner: keys.need("feed_forward_length"),
    n_positions: keys.need("context_length"),
    layer_norm_epsilon: keys.need("attention.layer_norm_epsilon"),
    ...vocabulary(gguf),
  });
}

/** Numbers under the architecture's prefix. */
class Keys {
  readonly prefix: string;
  readonly #metadata: ReadonlyMap<string, GgufValue>;

  constructor(metadata: ReadonlyMap<string, GgufValue>, prefix: string) {
    this.#metadata = metadata;
    this.prefix = prefix;
  }

  /** A number; an array of one value per layer counts when all are the same. */
  find(key: string): number | undefined {
    const value = this.#metadata.get(`${this.prefix}.${key}`);
    if (value === undefined || typeof value === "number") return value;
    const list = typeof value === "object" ? [...value] : [];
    if (list.length > 0 && list.every((item) => typeof item === "number" && item === list[0])) return list[0] as number;
    throw new InferxError("IX_MODEL_CONFIG", `metadata ${this.prefix}.${key} must be one number for all layers`, {
      key: `${this.prefix}.${key}`,
    });
  }

  need(key: string): number {
    const value = this.find(key);
    if (value === undefined || !(value > 0)) throw missing(`${this.prefix}.${key}`);
    return value;
  }

  text(key: string): string | undefined {
    const value = this.#metadata.get(`${this.prefix}.${key}`);
    return typeof value === "string" ? value : undefined;
  }
}

function missing(key: string): InferxError {
  return new InferxError("IX_MODEL_CONFIG", `the GGUF file lacks a usable ${key}`, { key });
}

/** Rows of the embedding and whether the output matrix is the same one. */
function vocabulary(gguf: GgufFile): HfConfig {
  const numRows = gguf.tensors.get("token_embd.weight")?.dims[1];
  if (numRows === undefined) throw missing("token_embd.weight");
  const tokens = gguf.metadata.get("tokenizer.ggml.tokens");
  if (Array.isArray(tokens) && tokens.length > numRows) {
    const details = { key: "tokenizer.ggml.tokens", numTokens: tokens.length, numRows };
    throw new InferxError("IX_MODEL_CONFIG", `${tokens.length} tokens, but only ${numRows} embedding rows`, details);
  }
  return { vocab_size: numRows, tie_word_embeddings: !gguf.tensors.has("output.weight") };
}

/** Llama-like builders ask the config whether projections have biases; in GGUF the tensors say so. */
function attentionBias(gguf: GgufFile): HfConfig {
  return { attention_bias: gguf.tensors.has("blk.0.attn_q.bias"), mlp_bias: gguf.tensors.has("blk.0.ffn_up.bias") };
}

function ropeScaling(keys: Keys, gguf: GgufFile, readFactors: ReadFactors): HfConfig | null {
  const given = {
    original_max_position_embeddings: keys.find("rope.scaling.original_context_length"),
    attention_factor: keys.find("rope.scaling.attn_factor"),
    beta_fast: keys.find("rope.scaling.yarn_beta_fast"),
    beta_slow: keys.find("rope.scaling.yarn_beta_slow"),
  };
  if (gguf.tensors.has("rope_freqs.weight")) {
    // llama 3: the converter stored the divisors of the frequencies, not the rule; longrope with one list is the same.
    const divisors = readFactors("rope_freqs.weight");
    const length = keys.need("context_length");
    const lists = { short_factor: divisors, long_factor: divisors };
    return { rope_type: "longrope", ...lists, attention_factor: 1, original_max_position_embeddings: length };
  }
  if (gguf.tensors.has("rope_factors_long.weight")) {
    return dropUndefined({
      rope_type: "longrope",
      long_factor: readFactors("rope_factors_long.weight"),
      short_factor: readFactors("rope_factors_short.weight"),
      original_max_position_embeddings: given.original_max_position_embeddings ?? keys.need("context_length"),
      attention_factor: given.attention_factor,
    });
  }
  const factor = keys.find("rope.scaling.factor") ?? keys.find("rope.scale_linear");
  const type = keys.text("rope.scaling.type") ?? (factor === undefined ? "none" : "linear");
  if (type === "none" || factor === undefined) return null;
  if (type === "linear") return { rope_type: "linear", factor };
  if (type !== "yarn") {
    const key = `${keys.prefix}.rope.scaling.type`;
    throw new InferxError("IX_MODEL_CONFIG", `metadata ${key} is ${type}, which is not known`, { key });
  }
  // llama.cpp multiplies its own magnitude with the factor of the file, transformers takes the whole product.
  const magnitude = given.attention_factor && given.attention_factor * (1 + 0.1 * Math.log(factor));
  return dropUndefined({ ...given, rope_type: "yarn", factor, attention_factor: magnitude });
}

function dropUndefined(config: HfConfig): HfConfig {
  return Object.fromEntries(Object.entries(config).filter(([, value]) => value !== undefined));
}

/** gemma divides queries by the root of a number that GGUF does not hold: the head width, but hidden/heads in the 27B models. */
function queryScalar(keys: Keys, config: HfConfig): number {
  const scale = keys.find("attention.scale");
  if (scale !== undefined) return 1 / scale ** 2;
  const layersOf27B = keys.prefix === "gemma2" ? 46 : 62;
  const { hidden_size: hidden, num_attention_heads: heads, num_hidden_layers: layers, head_dim: headDim } = config;
  return layers === layersOf27B ? Number(hidden) / Number(heads) : Number(headDim);
}

function layersWithout(gguf: GgufFile, numLayers: number, stem: string): number[] {
  const layers: number[] = [];
  for (let layer = 0; layer < Math.min(numLayers, gguf.tensors.size); layer++) {
    if (!gguf.tensors.has(`blk.${layer}.${stem}`)) layers.push(layer);
  }
  return layers;
}
