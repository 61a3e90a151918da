// Mistral: Llama with a sliding window on all layers, or on those that layer_types names.
import { architecture } from "./architecture.ts";
import { attention, embedding, gatedMlp, lmHead, rms } from "./blocks.ts";
import { activation, attentionLayers, windowDecoderKeys } from "./decoder.ts";

export const mistral = architecture("MistralForCausalLM", {
  config: windowDecoderKeys,
  build(g, c) {
    const [eps, act, layers] = [c.rms_norm_eps, activation(c.hidden_act), attentionLayers(g, c)];
    let x = embedding(g, "model.embed_tokens", c);
    for (const l of g.layers(c.num_hidden_layers, "model.layers")) {
      x = g.add(x, attention(l, rms(l, x, "input_layernorm", eps), layers[l.index]!));
      x = g.add(x, gatedMlp(l, rms(l, x, "post_attention_layernorm", eps), act));
    }
    return lmHead(g, rms(g, g.gather(x, g.rowIndex), "model.norm", eps), c);
  },
});
