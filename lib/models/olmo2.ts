// OLMo 2: norms after attention and MLP, not before; q and k normed across all heads together.
import { architecture } from "./architecture.ts";
import { attention, embedding, gatedMlp, lmHead, qkNorms, rms, separateProjections } from "./blocks.ts";
import { bool } from "./config.ts";
import { activation, attentionLayers, decoderKeys } from "./decoder.ts";

export const olmo2 = architecture("Olmo2ForCausalLM", {
  config: { ...decoderKeys, attention_bias: bool.optional },
  build(g, c) {
    const [eps, act, layers] = [c.rms_norm_eps, activation(c.hidden_act), attentionLayers(g, c)];
    let x = embedding(g, "model.embed_tokens", c);
    for (const l of g.layers(c.num_hidden_layers, "model.layers")) {
      const projections = separateProjections(l, { qkv: c.attention_bias, out: c.attention_bias });
      const y = attention(l, x, { ...layers[l.index]!, projections, qkNorm: qkNorms(l, eps) });
      x = g.add(x, rms(l, y, "post_attention_layernorm", eps));
      x = g.add(x, rms(l, gatedMlp(l, x, act), "post_feedforward_layernorm", eps));
    }
    return lmHead(g, rms(g, g.gather(x, g.rowIndex), "model.norm", eps), c);
  },
});
