// Shapes to measure with: `Model.load({ shape: shapes["8b"], seed: 1 })` makes the model, nothing is on disk.
const llama = {
  architectures: ["LlamaForCausalLM"],
  model_type: "llama",
  max_position_embeddings: 8192,
  rms_norm_eps: 1e-5,
  rope_theta: 500000,
  hidden_act: "silu",
  vocab_size: 128256,
  tie_word_embeddings: false,
  torch_dtype: "bfloat16",
};

export const shapes = {
  /** Llama 3 8B. */
  "8b": {
    ...llama,
    hidden_size: 4096,
    num_hidden_layers: 32,
    num_attention_heads: 32,
    num_key_value_heads: 8,
    head_dim: 128,
    intermediate_size: 14336,
  },
  /** Llama 3.2 1B. */
  "1b": {
    ...llama,
    hidden_size: 2048,
    num_hidden_layers: 16,
    num_attention_heads: 32,
    num_key_value_heads: 8,
    head_dim: 64,
    intermediate_size: 8192,
    tie_word_embeddings: true,
  },
  /** For a quick look on any machine. */
  tiny: {
    ...llama,
    vocab_size: 4096,
    hidden_size: 512,
    num_hidden_layers: 4,
    num_attention_heads: 8,
    num_key_value_heads: 2,
    head_dim: 64,
    intermediate_size: 1536,
  },
};

/** Two of its layers: for checks that need its sizes and not its depth. */
shapes["8b-2"] = { ...shapes["8b"], num_hidden_layers: 2 };

/** What a script's argument means to Model.load: the name of a shape, or a path. */
export function modelNamed(name = "8b") {
  return Object.hasOwn(shapes, name) ? { shape: shapes[name], seed: 1 } : name;
}
