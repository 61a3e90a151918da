// Falcon 7B: one KV head for all, attention and MLP side by side on one layer norm.
import { InferxError } from "../base/errors.ts";
import { architecture } from "./architecture.ts";
import { attention, dense, embedding, layerNorm, lmHead, packedProjections, plainMlp } from "./blocks.ts";
import { bool, float, string } from "./config.ts";
import { activation, attentionLayers, decoderKeys } from "./decoder.ts";

export const falcon = architecture("FalconForCausalLM", {
  config: {
    ...decoderKeys,
    activation: string.default("gelu"),
    layer_norm_epsilon: float.default(1e-5),
    bias: bool.default(false),
    alibi: bool.default(false),
    multi_query: bool.default(true),
    parallel_attn: bool.default(true),
    new_decoder_architecture: bool.default(false),
  },
  build(g, c) {
    if (c.alibi || !c.multi_query || !c.parallel_attn || c.new_decoder_architecture) {
      const message =
        "of the Falcon models only those of the 7B kind (multi_query, parallel_attn, no alibi) are supported";
      throw new InferxError("IX_UNSUPPORTED_ARCHITECTURE", message);
    }
    const layers = attentionLayers(g, { ...c, num_key_value_heads: 1 });
    const [eps, act, m] = [c.layer_norm_epsilon, activation(c.activation), g.scope("transformer")];
    let x = embedding(m, "word_embeddings", c);
    for (const l of m.layers(c.num_hidden_layers, "h")) {
      const layer = layers[l.index]!;
      const [qkv, out] = [dense(l, "self_attention.query_key_value", c.bias), dense(l, "self_attention.dense", c.bias)];
      const y = layerNorm(l, x, "input_layernorm", eps);
      x = g.add(x, attention(l, y, { ...layer, projections: packedProjections(l, qkv, out, layer) }));
      x = g.add(x, plainMlp(l, y, act, dense(l, "mlp.dense_h_to_4h", c.bias), dense(l, "mlp.dense_4h_to_h", c.bias)));
    }
    return lmHead(g, layerNorm(m, g.gather(x, g.rowIndex), "ln_f", eps), c, "transformer.word_embeddings");
  },
});
