// Writes a Llama 3 8B shaped model folder with random bf16 weights, to measure with: 16 GB, best on a file system in memory.
//
//   node bench/gpu/random-model.mjs /dev/shm/llama-8b [number of layers]
import { closeSync, mkdirSync, openSync, writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";

const folder = process.argv[2];
const config = {
  architectures: ["LlamaForCausalLM"],
  model_type: "llama",
  hidden_size: 4096,
  num_hidden_layers: Number(process.argv[3] ?? 32),
  num_attention_heads: 32,
  num_key_value_heads: 8,
  head_dim: 128,
  intermediate_size: 14336,
  vocab_size: 128256,
  max_position_embeddings: 8192,
  rms_norm_eps: 1e-5,
  rope_theta: 500000,
  hidden_act: "silu",
  tie_word_embeddings: false,
};
const { hidden_size: H, intermediate_size: F, vocab_size: V, num_hidden_layers: layers } = config;
const kv = config.num_key_value_heads * config.head_dim;
const shapes = { "model.embed_tokens": [V, H], "model.norm": [H], lm_head: [V, H] };
for (let l = 0; l < layers; l++) {
  const parts = { q_proj: [H, H], k_proj: [kv, H], v_proj: [kv, H], o_proj: [H, H] };
  for (const [name, shape] of Object.entries(parts)) shapes[`model.layers.${l}.self_attn.${name}`] = shape;
  for (const name of ["gate_proj", "up_proj"]) shapes[`model.layers.${l}.mlp.${name}`] = [F, H];
  shapes[`model.layers.${l}.mlp.down_proj`] = [H, F];
  for (const name of ["input_layernorm", "post_attention_layernorm"]) shapes[`model.layers.${l}.${name}`] = [H];
}
const header = {};
let bytes = 0;
for (const [name, shape] of Object.entries(shapes)) {
  const size = shape.reduce((a, b) => a * b) * 2;
  header[`${name}.weight`] = { dtype: "BF16", shape, data_offsets: [bytes, bytes + size] };
  bytes += size;
}

// A few megabytes of numbers in (-0.03, 0.03), repeated: outputs keep the size of inputs. Norms are ones.
const numbers = new Float32Array(1 << 22).map(() => (Math.random() - 0.5) * 0.054);
const noise = Buffer.from(Uint16Array.from(new Uint32Array(numbers.buffer), (bits) => bits >>> 16).buffer);
const ones = Buffer.from(new Uint16Array(H).fill(0x3f80).buffer);
mkdirSync(folder, { recursive: true });
writeFileSync(join(folder, "config.json"), JSON.stringify(config));
const file = openSync(join(folder, "model.safetensors"), "w");
const text = Buffer.from(JSON.stringify(header));
const length = Buffer.alloc(8);
length.writeBigUInt64LE(BigInt(text.length));
writeSync(file, length);
writeSync(file, text);
for (const { shape, data_offsets } of Object.values(header)) {
  const chunk = shape.length === 1 ? ones : noise;
  for (let left = data_offsets[1] - data_offsets[0]; left > 0; left -= chunk.length) {
    writeSync(file, chunk, 0, Math.min(left, chunk.length));
  }
}
closeSync(file);
