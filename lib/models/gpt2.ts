// GPT-2: learned positions, layer norms, matrices stored [in, out].
import type { Builder } from "../ir/builder.ts";
import { architecture } from "./architecture.ts";
import { attention, type Dense, embedding, layerNorm, lmHead, packedProjections, plainMlp } from "./blocks.ts";
import { bool, float, int, intWithin, refuseConfig, string } from "./config.ts";
import { activation, layerCaches, maxLayers } from "./decoder.ts";

export const gpt2 = architecture("GPT2LMHeadModel", {
  config: {
    n_embd: int,
    n_head: int,
    n_layer: intWithin(1, maxLayers),
    n_positions: int,
    vocab_size: int.optional,
    activation_function: string.default("gelu_new"),
    layer_norm_epsilon: float.default(1e-5),
    scale_attn_weights: bool.default(true),
    scale_attn_by_inverse_layer_idx: bool.default(false),
    tie_word_embeddings: bool.optional,
  },
  build(g, c) {
    const [eps, act] = [c.layer_norm_epsilon, activation(c.activation_function)];
    if (c.n_embd % c.n_head !== 0) refuseConfig("n_head", c.n_head, `a divisor of n_embd (${c.n_embd})`);
    const shape = { heads: c.n_head, kvHeads: c.n_head, headDim: c.n_embd / c.n_head };
    const caches = layerCaches(g, Array<number>(c.n_layer).fill(0), shape);
    const m = g.scope("transformer");
    let x = embedding(m, "wte", { vocab_size: c.vocab_size, hidden_size: c.n_embd });
    x = g.add(x, g.embed(g.positions, m.weight("wpe")));
    for (const l of m.layers(c.n_layer, "h")) {
      const layer = { ...shape, cache: caches[l.index]!, rope: undefined };
      const conv = conv1d(l, c.n_embd);
      const projections = packedProjections(l, conv("attn.c_attn"), conv("attn.c_proj"), layer);
      const scale =
        (c.scale_attn_weights ? shape.headDim ** -0.5 : 1) / (c.scale_attn_by_inverse_layer_idx ? l.index + 1 : 1);
      x = g.add(x, attention(l, layerNorm(l, x, "ln_1", eps), { ...layer, projections, scale }));
      x = g.add(x, plainMlp(l, layerNorm(l, x, "ln_2", eps), act, conv("mlp.c_fc"), conv("mlp.c_proj")));
    }
    return lmHead(g, layerNorm(m, g.gather(x, g.rowIndex), "ln_f", eps), c, "transformer.wte");
  },
});

/** The layer's matrices, stored [in, out] by Hugging Face and [out, in] in GGUF files: c_attn, never square, tells which. */
function conv1d(l: Builder, hidden: number): (name: string) => Dense {
  const isTransposed = l.weight("attn.c_attn").shape[0] === hidden;
  return (name) => ({ weight: isTransposed ? l.transposed(name) : l.weight(name), bias: l.weight(`${name}.bias`) });
}
