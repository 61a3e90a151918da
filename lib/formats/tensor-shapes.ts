// The shapes of tensors that follow from a configuration and from the names that Hugging Face's classes give them: what a model
// without files is made from. Real checkpoints say their shapes themselves.
import { InferxError } from "../base/errors.ts";
import type { HfConfig } from "./hf-config.ts";

/** Sizes above this cannot be meant, and would leave the range in which plans count rows. */
const maxSize = 2 ** 28;

/** Counts that dims are made of, read when a rule asks for them. */
class Sizes {
  readonly architecture: string;
  readonly #config: HfConfig;

  constructor(architecture: string, config: HfConfig) {
    this.architecture = architecture;
    this.#config = config;
  }

  /** The first of `keys` that the configuration has, else `absent`. Errors: IX_MODEL_CONFIG. */
  #count(keys: readonly string[], absent?: () => number): number {
    const key = keys.find((name) => this.#config[name] !== undefined && this.#config[name] !== null);
    if (key === undefined && absent) return absent();
    const value = key === undefined ? undefined : this.#config[key];
    if (!Number.isInteger(value) || (value as number) < 1) {
      const message = `config key "${keys.join('" or "')}" must be an integer of at least 1, got ${JSON.stringify(value)}`;
      throw new InferxError("IX_MODEL_CONFIG", message, { key: key ?? keys[0] });
    }
    if ((value as number) > maxSize)
      throw new InferxError("IX_OUT_OF_MEMORY", `${key} ${value} is beyond any memory`, { key, value });
    return value as number;
  }

  get vocabulary(): number {
    return this.#count(["vocab_size"]);
  }
  get hidden(): number {
    return this.#count(["hidden_size", "n_embd"]);
  }
  get positions(): number {
    return this.#count(["n_positions", "max_position_embeddings"]);
  }
  get heads(): number {
    return this.#count(["num_attention_heads", "n_head"]);
  }
  get headDim(): number {
    return this.#count(["head_dim"], () => this.hidden / this.heads);
  }
  get q(): number {
    return this.heads * this.headDim;
  }
  get kvHeads(): number {
    return this.architecture === "FalconForCausalLM" ? 1 : this.#count(["num_key_value_heads"], () => this.heads);
  }
  get kv(): number {
    return this.kvHeads * this.headDim;
  }
  get mlp(): number {
    const isOld = /^(GPT2|Falcon)/.test(this.architecture);
    const keys = ["intermediate_size", "n_inner", "ffn_hidden_size"];
    return this.#count(keys, isOld ? () => 4 * this.hidden : undefined);
  }
  get expertMlp(): number {
    return this.#count(["moe_intermediate_size", "intermediate_size"]);
  }
  get sharedMlp(): number {
    return this.#count(["shared_expert_intermediate_size"]);
  }
  get experts(): number {
    return this.#count(["num_experts", "num_local_experts"]);
  }
  is(flag: string): boolean {
    return this.#config[flag] === true;
  }
}

const flatNorms = /^Olmo/;
const convolutions = "GPT2LMHeadModel"; // stores matrices [in, out]

/** Dims by the end of the name before `.weight`; the first match counts. */
const rules: [name: RegExp, dims: (s: Sizes) => number[]][] = [
  [/(^|\.)(embed_tokens|embed_in|word_embeddings|wte|lm_head|embed_out)$/, (s) => [s.vocabulary, s.hidden]],
  [/\.wpe$/, (s) => [s.positions, s.hidden]],
  [/\.q_norm$/, (s) => headNorm(s, s.heads)],
  [/\.k_norm$/, (s) => headNorm(s, s.kvHeads)],
  [/(norm|\.ln_\w)$/, (s) => [s.hidden]],

  [/\.q_proj$/, (s) => [s.q, s.hidden]],
  [/\.[kv]_proj$/, (s) => [s.kv, s.hidden]],
  [/\.(qkv_proj|query_key_value)$/, (s) => [s.q + 2 * s.kv, s.hidden]],
  [/\.(o_proj|(self_attn|attention|self_attention)\.dense)$/, (s) => [s.hidden, s.q]],
  [/\.c_attn$/, (s) => [s.hidden, 3 * s.hidden]],
  [/\.attn\.c_proj$/, (s) => [s.hidden, s.hidden]],

  [/\.(mlp\.gate|block_sparse_moe\.gate|router\.layer)$/, (s) => [s.experts, s.hidden]],
  [/\.shared_expert_gate$/, (s) => [1, s.hidden]],
  [/\.input_linear$/, (s) => [s.experts, 2 * s.expertMlp, s.hidden]],
  [/\.output_linear$/, (s) => [s.experts, s.hidden, s.expertMlp]],
  [/\.shared_expert\.(gate|up)_proj$/, (s) => [s.sharedMlp, s.hidden]],
  [/\.shared_expert\.down_proj$/, (s) => [s.hidden, s.sharedMlp]],
  [/\.experts\.\d+\.(gate_proj|up_proj|w1|w3)$/, (s) => [s.expertMlp, s.hidden]],
  [/\.experts\.\d+\.(down_proj|w2)$/, (s) => [s.hidden, s.expertMlp]],

  [/\.gate_up_proj$/, (s) => [2 * s.mlp, s.hidden]],
  [/\.(gate_proj|up_proj|fc1|dense_h_to_4h)$/, (s) => [s.mlp, s.hidden]],
  [/\.(down_proj|fc2|dense_4h_to_h)$/, (s) => [s.hidden, s.mlp]],
  [/\.mlp\.c_fc$/, (s) => (s.architecture === convolutions ? [s.hidden, s.mlp] : [s.mlp, s.hidden])],
  [/\.mlp\.c_proj$/, (s) => (s.architecture === convolutions ? [s.mlp, s.hidden] : [s.hidden, s.mlp])],
];

function headNorm(s: Sizes, heads: number): number[] {
  if (s.architecture === "CohereForCausalLM") return [heads, s.headDim];
  return [flatNorms.test(s.architecture) ? heads * s.headDim : s.headDim];
}

/** Classes whose tensors of these names have biases, whatever the configuration says. */
const biasedClasses: Record<string, RegExp> = {
  GPT2LMHeadModel: /./,
  GPTNeoXForCausalLM: /^gpt_neox/,
  PhiForCausalLM: /./,
  FalconForCausalLM: /norm$|ln_f$/,
  StableLmForCausalLM: /norm$/,
  Starcoder2ForCausalLM: /norm$/,
  Qwen2ForCausalLM: /[qkv]_proj$/,
  Qwen2MoeForCausalLM: /[qkv]_proj$/,
};
/** Flags of configurations, and what has biases where they are true. */
const biasFlags: [flag: string, names: RegExp][] = [
  ["attention_bias", /\.self_attn\.\w+_proj$/],
  ["mlp_bias", /\.mlp\.\w+_proj$/],
  ["use_qkv_bias", /\.[qkv]_proj$/],
  ["use_bias", /\.(self_attn|mlp)\.\w+$/],
  ["bias", /\.(self_attention|mlp)\.\w+$/],
];

function hasBias(s: Sizes, name: string): boolean {
  return (
    biasedClasses[s.architecture]?.test(name) === true ||
    biasFlags.some(([flag, names]) => s.is(flag) && names.test(name))
  );
}

/**
 * The shape of the tensor of a name, as stored; undefined where such a model has none, or the name is not one of Hugging Face's.
 * The function throws IX_MODEL_CONFIG when the configuration lacks a size, IX_OUT_OF_MEMORY when one is absurd.
 */
export function tensorShapes(architecture: string, config: HfConfig): (name: string) => number[] | undefined {
  const sizes = new Sizes(architecture, config);
  return (name) => {
    const [, stem, part] = /^(.+)\.(weight|bias)$/.exec(name) ?? [];
    const rule = rules.find(([pattern]) => stem !== undefined && pattern.test(stem));
    if (!rule || (part === "bias" && !hasBias(sizes, stem!))) return undefined;
    const dims = rule[1](sizes);
    if (part === "weight") return dims;
    return [architecture === convolutions ? dims.at(-1)! : dims[0]!];
  };
}
