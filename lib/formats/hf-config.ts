// Brings config.json, in whichever layout it was written, into one: the keys of transformers 4.x.
// Not here: whether an architecture's keys are all there; its builder checks them (lib/models).
import { InferxError } from "../base/errors.ts";
import { isRecord } from "./small-files.ts";

export type HfConfig = Record<string, unknown>;

/** `model_type` -> class, for configs that do not name their architecture. */
const architectureOfModelType: Record<string, string> = {
  cohere: "CohereForCausalLM",
  cohere2: "Cohere2ForCausalLM",
  deepseek_v2: "DeepseekV2ForCausalLM",
  deepseek_v3: "DeepseekV3ForCausalLM",
  exaone4: "Exaone4ForCausalLM",
  falcon: "FalconForCausalLM",
  gemma: "GemmaForCausalLM",
  gemma2: "Gemma2ForCausalLM",
  gemma3: "Gemma3ForConditionalGeneration",
  gemma3_text: "Gemma3ForCausalLM",
  glm4: "Glm4ForCausalLM",
  glm4_moe: "Glm4MoeForCausalLM",
  gpt2: "GPT2LMHeadModel",
  gpt_neox: "GPTNeoXForCausalLM",
  gpt_oss: "GptOssForCausalLM",
  granite: "GraniteForCausalLM",
  granitemoe: "GraniteMoeForCausalLM",
  llama: "LlamaForCausalLM",
  mistral: "MistralForCausalLM",
  mixtral: "MixtralForCausalLM",
  olmo2: "Olmo2ForCausalLM",
  olmoe: "OlmoeForCausalLM",
  phi: "PhiForCausalLM",
  phi3: "Phi3ForCausalLM",
  qwen2: "Qwen2ForCausalLM",
  qwen2_moe: "Qwen2MoeForCausalLM",
  qwen2_vl: "Qwen2VLForConditionalGeneration",
  qwen2_5_vl: "Qwen2_5_VLForConditionalGeneration",
  qwen3: "Qwen3ForCausalLM",
  qwen3_moe: "Qwen3MoeForCausalLM",
  smollm3: "SmolLM3ForCausalLM",
  stablelm: "StableLmForCausalLM",
  starcoder2: "Starcoder2ForCausalLM",
};

/** Model types whose output matrix is the embedding unless the config says otherwise. */
const tiedByDefault = new Set(
  "cohere cohere2 falcon gemma gemma2 gemma3 gemma3_text gpt2 smollm3 starcoder2".split(" "),
);

/** What a class assumes where its config is silent; published gemma 3 configs name only what differs from this. */
const defaults: Record<string, HfConfig> = {
  gemma3_text: {
    vocab_size: 262_208,
    num_attention_heads: 8,
    num_key_value_heads: 4,
    head_dim: 256,
    rms_norm_eps: 1e-6,
    max_position_embeddings: 131_072,
    hidden_activation: "gelu_pytorch_tanh",
    query_pre_attn_scalar: 256,
    sliding_window: 4096,
    rope_theta: 1_000_000,
    rope_local_base_freq: 10_000,
  },
  gemma: { hidden_activation: "gelu_pytorch_tanh" },
  gemma2: { query_pre_attn_scalar: 256, attn_logit_softcapping: 50, final_logit_softcapping: 30, sliding_window: 4096 },
};

/** Every n-th layer attends to everything, where the config does not say so. */
const slidingPattern: Record<string, number> = { gemma2: 2, gemma3_text: 6, cohere2: 4 };

/** Older or other names for the same key: `[model types, found, wanted]`. */
const renamed: [RegExp, string, string][] = [
  [/./, "dtype", "torch_dtype"],
  [/^gpt_neox$/, "rotary_emb_base", "rope_theta"],
  [/^gpt_neox$/, "rotary_pct", "partial_rotary_factor"],
  [/^(qwen2_moe|qwen3_moe|olmoe)$/, "num_local_experts", "num_experts"],
  [/^gemma$/, "hidden_act", "hidden_activation"],
];

/** The architecture's class name. Errors: IX_MODEL_CONFIG when neither `architectures` nor a known `model_type` says it. */
export function architectureOf(config: HfConfig): string {
  const text = isRecord(config.text_config) ? config.text_config : {};
  for (const list of [config.architectures, text.architectures]) {
    if (Array.isArray(list) && typeof list[0] === "string") return list[0];
  }
  const byType = architectureOfModelType[String(config.model_type)];
  if (byType) return byType;
  throw new InferxError(
    "IX_MODEL_CONFIG",
    `the config names no architecture (model_type is ${String(config.model_type)})`,
    {
      key: "architectures",
    },
  );
}

/**
 * One layout for both generations of config.json:
 * `text_config` lifted to the top, `rope_parameters` taken apart into `rope_theta`, `rope_scaling`
 * (null, or with `rope_type`), `rope_local_base_freq` and `partial_rotary_factor`; `torch_dtype`;
 * `tie_word_embeddings`, `sliding_window` (null when unused) and, where the depth is known, `layer_types` always present.
 */
export function normaliseHfConfig(raw: HfConfig): HfConfig {
  const { text_config: text, ...outer } = raw;
  let config: HfConfig = isRecord(text) ? { ...outer, ...text, ...pick(outer, ["quantization_config"]) } : { ...outer };
  const modelType = String(config.model_type);
  for (const [types, found, wanted] of renamed) {
    if (!types.test(modelType) || config[found] === undefined) continue;
    config[wanted] ??= config[found];
    delete config[found];
  }
  liftRopeParameters(config);
  config = { ...defaults[modelType], ...config };
  normaliseRopeScaling(config);
  config.tie_word_embeddings ??= tiedByDefault.has(modelType);
  if (config.use_sliding_window === false || !config.sliding_window) config.sliding_window = null;
  config.layer_types ??= layerTypes(config, modelType);
  if (modelType === "smollm3") config.no_rope_layers ??= noRopeLayers(config);
  return config;
}

function pick(source: HfConfig, keys: string[]): HfConfig {
  return Object.fromEntries(keys.flatMap((key) => (source[key] === undefined ? [] : [[key, source[key]]])));
}

/** transformers 5: one dict, or one per layer type (`full_attention`, `sliding_attention`). */
function liftRopeParameters(config: HfConfig): void {
  const parameters = config.rope_parameters;
  delete config.rope_parameters;
  if (!isRecord(parameters)) return;
  const isPerType = isRecord(parameters.full_attention);
  const { rope_theta, partial_rotary_factor, ...scaling } = isPerType
    ? (parameters.full_attention as HfConfig)
    : parameters;
  config.rope_theta ??= rope_theta;
  if (partial_rotary_factor !== undefined) config.partial_rotary_factor ??= partial_rotary_factor;
  config.rope_scaling ??= scaling;
  const local = parameters.sliding_attention;
  if (isPerType && isRecord(local)) config.rope_local_base_freq ??= local.rope_theta;
}

function normaliseRopeScaling(config: HfConfig): void {
  const { rope_scaling: given } = config;
  if (!isRecord(given)) {
    config.rope_scaling = null;
    return;
  }
  const { type, ...scaling } = given;
  // "mrope" and "su" are names of early qwen2-vl and phi3 releases.
  const ropeType = { mrope: "default", su: "longrope" }[String(scaling.rope_type ?? type)] ?? scaling.rope_type ?? type;
  if (ropeType === "default" && scaling.mrope_section === undefined) {
    config.rope_scaling = null;
    return;
  }
  const original = config.original_max_position_embeddings;
  if (ropeType === "longrope" && original !== undefined) scaling.original_max_position_embeddings ??= original;
  config.rope_scaling = { ...scaling, rope_type: ropeType };
}

/** What each layer attends to, for configs older than the key; undefined where the depth is unknown. */
function layerTypes(config: HfConfig, modelType: string): string[] | undefined {
  const depth = config.num_hidden_layers;
  if (!isDepth(depth)) return undefined;
  const { sliding_window: window, max_window_layers: firstLayers } = config;
  const isSliding = (layer: number): boolean => {
    if (window === null) return false;
    const pattern = config.sliding_window_pattern ?? config._sliding_window_pattern ?? slidingPattern[modelType];
    if (pattern !== undefined) return (layer + 1) % Number(pattern) !== 0;
    return typeof firstLayers !== "number" || layer >= firstLayers;
  };
  return Array.from({ length: depth }, (_, layer) => (isSliding(layer) ? "sliding_attention" : "full_attention"));
}

function noRopeLayers(config: HfConfig): number[] | undefined {
  const depth = config.num_hidden_layers;
  const interval = Number(config.no_rope_layer_interval ?? 4);
  return isDepth(depth) ? Array.from({ length: depth }, (_, i) => ((i + 1) % interval === 0 ? 0 : 1)) : undefined;
}

/** A layer count that may size an array; the builder reports an absent or absurd one. */
function isDepth(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) > 0 && (value as number) <= 10_000;
}
