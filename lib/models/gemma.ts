// Gemma 1: Llama with norms stored as the difference to 1 and scaled embeddings.
import { architecture } from "./architecture.ts";
import { attention, embedding, gatedMlp, lmHead, rmsPlusOne } from "./blocks.ts";
import { string } from "./config.ts";
import { activation, attentionLayers, decoderKeys } from "./decoder.ts";

export const gemma = architecture("GemmaForCausalLM", {
  config: { ...decoderKeys, hidden_activation: string.default("gelu_pytorch_tanh") },
  build(g, c) {
    const [eps, act, layers] = [c.rms_norm_eps, activation(c.hidden_activation), attentionLayers(g, c)];
    let x = g.scale(embedding(g, "model.embed_tokens", c), Math.sqrt(c.hidden_size));
    for (const l of g.layers(c.num_hidden_layers, "model.layers")) {
      x = g.add(x, attention(l, rmsPlusOne(l, x, "input_layernorm", eps), layers[l.index]!));
      x = g.add(x, gatedMlp(l, rmsPlusOne(l, x, "post_attention_layernorm", eps), act));
    }
    return lmHead(g, rmsPlusOne(g, g.gather(x, g.rowIndex), "model.norm", eps), c);
  },
});
