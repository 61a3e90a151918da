// Models and arithmetic that random steps run with, on the device of the tests.
import { join } from "node:path";
import { deviceKind } from "../device.ts";
import { repository } from "./models.ts";

/** Small, but with real head widths; scores are spread, so that answers depend on single keys. Two cache groups in the second. */
const shape = {
  hidden_size: 192,
  intermediate_size: 256,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  max_position_embeddings: 512,
  vocab_size: 512,
  eos_token_id: 7,
};
const granite = {
  ...shape,
  architectures: ["GraniteForCausalLM"],
  num_key_value_heads: 2,
  head_dim: 64,
  attention_multiplier: 0.3,
  embedding_multiplier: 12,
  residual_multiplier: 0.5,
  logits_scaling: 0.5,
};
const gemma3 = {
  ...shape,
  architectures: ["Gemma3ForCausalLM"],
  num_key_value_heads: 1,
  head_dim: 128,
  query_pre_attn_scalar: 256,
  sliding_window: 40,
  layer_types: ["sliding_attention", "full_attention"],
};

export interface Variant {
  name: string;
  model: string | { shape: Record<string, unknown>; seed: number };
  numerics: "f32" | "fast";
  deterministic: boolean;
  tolerance: number;
  /** Of the steps. */
  share: number;
}
const variant = (
  name: string,
  model: Variant["model"],
  numerics: "f32" | "fast",
  share: number,
  tolerance = 0,
): Variant => ({
  name: `${name}, ${numerics}${tolerance > 0 ? "" : ", the same whatever else runs"}`,
  model,
  numerics,
  deterministic: deviceKind === "cuda" && tolerance === 0,
  tolerance,
  share,
});
export const variants =
  deviceKind === "cpu"
    ? [
        variant("demo", join(repository, "models/demo/demo-draft-q8_0.gguf"), "fast", 0.5),
        variant("granite", { shape: granite, seed: 1 }, "f32", 0.25),
        variant("gemma3", { shape: gemma3, seed: 2 }, "f32", 0.25),
      ]
    : [
        variant("granite", { shape: granite, seed: 1 }, "f32", 0.2, 2e-3),
        variant("granite", { shape: granite, seed: 1 }, "fast", 0.2, 0.2),
        variant("granite", { shape: granite, seed: 1 }, "fast", 0.2),
        variant("gemma3", { shape: gemma3, seed: 2 }, "f32", 0.2, 2e-3),
        variant("gemma3", { shape: gemma3, seed: 2 }, "fast", 0.2),
      ];
