// Qwen 2 and 2.5: q, k and v have biases; the upper layers may look at a window.
import { architecture } from "./architecture.ts";
import { attention, embedding, gatedMlp, lmHead, rms, separateProjections } from "./blocks.ts";
import { activation, attentionLayers, windowDecoderKeys } from "./decoder.ts";

export const qwen2 = architecture("Qwen2ForCausalLM", {
  config: windowDecoderKeys,
  build(g, c) {
    const [eps, act, layers] = [c.rms_norm_eps, activation(c.hidden_act), attentionLayers(g, c)];
    let x = embedding(g, "model.embed_tokens", c);
    for (const l of g.layers(c.num_hidden_layers, "model.layers")) {
      const projections = separateProjections(l, { qkv: true, out: false });
      x = g.add(x, attention(l, rms(l, x, "input_layernorm", eps), { ...layers[l.index]!, projections }));
      x = g.add(x, gatedMlp(l, rms(l, x, "post_attention_layernorm", eps), act));
    }
    return lmHead(g, rms(g, g.gather(x, g.rowIndex), "model.norm", eps), c);
  },
});
