// GPT-NeoX and Pythia: q, k and v of each head lie together in one matrix, part of each head rotates.
import type { Builder } from "../ir/builder.ts";
import { architecture } from "./architecture.ts";
import { attention, type Dense, dense, embedding, layerNorm, lmHead, plainMlp, splitRows } from "./blocks.ts";
import { bool, float, string } from "./config.ts";
import { activation, attentionLayers, decoderKeys } from "./decoder.ts";

export const gptNeox = architecture("GPTNeoXForCausalLM", {
  config: {
    ...decoderKeys,
    hidden_act: string.default("gelu"),
    layer_norm_eps: float.default(1e-5),
    use_parallel_residual: bool.default(true),
  },
  build(g, c) {
    const [eps, act, layers] = [c.layer_norm_eps, activation(c.hidden_act), attentionLayers(g, c)];
    let x = embedding(g, "gpt_neox.embed_in", c);
    for (const l of g.layers(c.num_hidden_layers, "gpt_neox.layers")) {
      const layer = layers[l.index]!;
      const [q, k, v] = headsOf(l, dense(l, "attention.query_key_value"), layer.heads, layer.headDim);
      const projections = { q, k, v, out: dense(l, "attention.dense") };
      const attended = g.add(x, attention(l, layerNorm(l, x, "input_layernorm", eps), { ...layer, projections }));
      const y = layerNorm(l, c.use_parallel_residual ? x : attended, "post_attention_layernorm", eps);
      x = g.add(attended, plainMlp(l, y, act, dense(l, "mlp.dense_h_to_4h"), dense(l, "mlp.dense_4h_to_h")));
    }
    const hidden = layerNorm(g, g.gather(x, g.rowIndex), "gpt_neox.final_layer_norm", eps);
    return lmHead(g, hidden, c, "gpt_neox.embed_in", "embed_out");
  },
});

/** Rows (head, q | k | v, width) taken apart into q, k and v. */
function headsOf(l: Builder, packed: Dense, heads: number, headDim: number): [Dense, Dense, Dense] {
  const parts = splitRows(l, packed, Array<number>(heads * 3).fill(headDim));
  const every = (first: number): Dense => {
    const own = parts.filter((_, i) => i % 3 === first);
    const biases = own.flatMap(({ bias }) => bias ?? []);
    const weight = l.concatRows(own.map((part) => part.weight));
    return { weight, bias: biases.length > 0 ? l.concatRows(biases) : undefined };
  };
  return [every(0), every(1), every(2)];
}
