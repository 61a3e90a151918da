// Llama 1 to 3.2 and the many models of its shape.
import { architecture } from "./architecture.ts";
import { attention, embedding, gatedMlp, lmHead, rms, separateProjections } from "./blocks.ts";
import { bool } from "./config.ts";
import { activation, attentionLayers, decoderKeys } from "./decoder.ts";

export const llama = architecture("LlamaForCausalLM", {
  config: { ...decoderKeys, attention_bias: bool.optional, mlp_bias: bool.optional },
  build(g, c) {
    const [eps, act, layers] = [c.rms_norm_eps, activation(c.hidden_act), attentionLayers(g, c)];
    let x = embedding(g, "model.embed_tokens", c);
    for (const l of g.layers(c.num_hidden_layers, "model.layers")) {
      const projections = separateProjections(l, { qkv: c.attention_bias, out: c.attention_bias });
      x = g.add(x, attention(l, rms(l, x, "input_layernorm", eps), { ...layers[l.index]!, projections }));
      x = g.add(x, gatedMlp(l, rms(l, x, "post_attention_layernorm", eps), act, "mlp", c.mlp_bias));
    }
    return lmHead(g, rms(g, g.gather(x, g.rowIndex), "model.norm", eps), c);
  },
});
