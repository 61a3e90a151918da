// The one table from GGUF tensor names to Hugging Face names, per architecture, and what llama.cpp's converter
// did to the values on the way (rows permuted, one added to norm weights).
// Not here: metadata (gguf-config.ts). Names are those of gguf-py's `TENSOR_NAME` table.

/** `{l}` is the layer, `{e}` the expert; what follows the stem (`.weight`, `.bias`) is kept. */
export interface GgufNaming {
  names: Record<string, string>;
  /** Stacked `[E, ...]` tensors, split into one tensor per expert. */
  experts?: Record<string, string>;
  /** Rows of q and k are interleaved for adjacent rope pairs: row `2j + h` of a head is row `h * D/2 + j` of Hugging Face's. */
  permutedRope?: true;
  /** Norm weights are stored as `1 + w`. */
  normsPlusOne?: true;
}

const frame = {
  token_embd: "model.embed_tokens",
  output_norm: "model.norm",
  output: "lm_head",
};

const attention = {
  "blk.{l}.attn_q": "model.layers.{l}.self_attn.q_proj",
  "blk.{l}.attn_k": "model.layers.{l}.self_attn.k_proj",
  "blk.{l}.attn_v": "model.layers.{l}.self_attn.v_proj",
  "blk.{l}.attn_output": "model.layers.{l}.self_attn.o_proj",
  "blk.{l}.attn_q_norm": "model.layers.{l}.self_attn.q_norm",
  "blk.{l}.attn_k_norm": "model.layers.{l}.self_attn.k_norm",
};

const mlp = {
  "blk.{l}.ffn_gate": "model.layers.{l}.mlp.gate_proj",
  "blk.{l}.ffn_up": "model.layers.{l}.mlp.up_proj",
  "blk.{l}.ffn_down": "model.layers.{l}.mlp.down_proj",
};

const preNorms = {
  "blk.{l}.attn_norm": "model.layers.{l}.input_layernorm",
  "blk.{l}.ffn_norm": "model.layers.{l}.post_attention_layernorm",
};

const decoder = { ...frame, ...attention, ...mlp, ...preNorms };

/** gemma 2 and 3: a norm before and after each half of a block. */
const sandwich = {
  ...frame,
  ...attention,
  ...mlp,
  "blk.{l}.attn_norm": "model.layers.{l}.input_layernorm",
  "blk.{l}.post_attention_norm": "model.layers.{l}.post_attention_layernorm",
  "blk.{l}.ffn_norm": "model.layers.{l}.pre_feedforward_layernorm",
  "blk.{l}.post_ffw_norm": "model.layers.{l}.post_feedforward_layernorm",
};

const moe = "model.layers.{l}.mlp.experts.{e}";
const mixtralMoe = "model.layers.{l}.block_sparse_moe.experts.{e}";

/** Keyed by the Hugging Face class that the GGUF architecture stands for (see gguf-config.ts). */
export const ggufNamings: Record<string, GgufNaming> = {
  LlamaForCausalLM: { names: decoder, permutedRope: true },
  MistralForCausalLM: { names: decoder, permutedRope: true },
  MixtralForCausalLM: {
    names: {
      ...decoder,
      "blk.{l}.ffn_gate_inp": "model.layers.{l}.block_sparse_moe.gate",
      // Files from before experts were stacked.
      "blk.{l}.ffn_gate.{e}": `${mixtralMoe}.w1`,
      "blk.{l}.ffn_down.{e}": `${mixtralMoe}.w2`,
      "blk.{l}.ffn_up.{e}": `${mixtralMoe}.w3`,
    },
    experts: {
      "blk.{l}.ffn_gate_exps": `${mixtralMoe}.w1`,
      "blk.{l}.ffn_down_exps": `${mixtralMoe}.w2`,
      "blk.{l}.ffn_up_exps": `${mixtralMoe}.w3`,
    },
    permutedRope: true,
  },
  SmolLM3ForCausalLM: { names: decoder, permutedRope: true },
  Qwen2ForCausalLM: { names: decoder },
  Qwen3ForCausalLM: { names: decoder },
  Qwen3MoeForCausalLM: {
    names: { ...decoder, "blk.{l}.ffn_gate_inp": "model.layers.{l}.mlp.gate" },
    experts: {
      "blk.{l}.ffn_gate_exps": `${moe}.gate_proj`,
      "blk.{l}.ffn_up_exps": `${moe}.up_proj`,
      "blk.{l}.ffn_down_exps": `${moe}.down_proj`,
    },
  },
  Gemma2ForCausalLM: { names: sandwich, normsPlusOne: true },
  Gemma3ForCausalLM: { names: sandwich, normsPlusOne: true },
  Phi3ForCausalLM: {
    names: {
      ...frame,
      ...preNorms,
      "blk.{l}.attn_qkv": "model.layers.{l}.self_attn.qkv_proj",
      "blk.{l}.attn_output": "model.layers.{l}.self_attn.o_proj",
      "blk.{l}.ffn_up": "model.layers.{l}.mlp.gate_up_proj",
      "blk.{l}.ffn_down": "model.layers.{l}.mlp.down_proj",
    },
  },
  Olmo2ForCausalLM: {
    names: {
      ...frame,
      ...attention,
      ...mlp,
      "blk.{l}.post_attention_norm": "model.layers.{l}.post_attention_layernorm",
      "blk.{l}.post_ffw_norm": "model.layers.{l}.post_feedforward_layernorm",
    },
  },
  GPT2LMHeadModel: {
    names: {
      token_embd: "transformer.wte",
      position_embd: "transformer.wpe",
      output_norm: "transformer.ln_f",
      output: "lm_head",
      "blk.{l}.attn_norm": "transformer.h.{l}.ln_1",
      "blk.{l}.attn_qkv": "transformer.h.{l}.attn.c_attn",
      "blk.{l}.attn_output": "transformer.h.{l}.attn.c_proj",
      "blk.{l}.ffn_norm": "transformer.h.{l}.ln_2",
      "blk.{l}.ffn_up": "transformer.h.{l}.mlp.c_fc",
      "blk.{l}.ffn_down": "transformer.h.{l}.mlp.c_proj",
    },
  },
};

/** Tensors that are hyper-parameters; gguf-config.ts reads them into the config. */
export const ropeFactorTensors = ["rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"];

/**
 * The Hugging Face name of a GGUF tensor, undefined when the architecture has none for it.
 * For a stacked tensor the name holds `{e}`, to be replaced by each expert's number.
 */
export function hfTensorName(naming: GgufNaming, name: string): string | undefined {
  const [, stem, suffix] = /^(.*)(\.weight|\.bias)$/.exec(name) ?? [];
  if (stem === undefined) return undefined;
  const numbers: string[] = [];
  const pattern = stem.replace(/\.(\d+)(?=\.|$)/g, (_, number: string) => {
    numbers.push(number);
    return numbers.length === 1 ? ".{l}" : ".{e}";
  });
  const target = naming.names[pattern] ?? naming.experts?.[pattern];
  if (target === undefined) return undefined;
  const [layer, expert] = numbers;
  const named = target.replace("{l}", layer ?? "");
  return (expert === undefined ? named : named.replace("{e}", expert)) + suffix;
}
