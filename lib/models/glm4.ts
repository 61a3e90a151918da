// GLM 4 (0414): norms before and after each part, part of each head rotates, in neighbouring columns.
import { architecture } from "./architecture.ts";
import { attention, dense, embedding, lmHead, packedGatedMlp, rms, separateProjections } from "./blocks.ts";
import { bool } from "./config.ts";
import { activation, attentionLayers, decoderKeys } from "./decoder.ts";

export const glm4 = architecture("Glm4ForCausalLM", {
  config: { ...decoderKeys, attention_bias: bool.optional },
  build(g, c) {
    const [eps, act, layers] = [c.rms_norm_eps, activation(c.hidden_act), attentionLayers(g, c, true)];
    let x = embedding(g, "model.embed_tokens", c);
    for (const l of g.layers(c.num_hidden_layers, "model.layers")) {
      const projections = separateProjections(l, { qkv: c.attention_bias, out: false });
      let y = attention(l, rms(l, x, "input_layernorm", eps), { ...layers[l.index]!, projections });
      x = g.add(x, rms(l, y, "post_self_attn_layernorm", eps));
      y = rms(l, x, "post_attention_layernorm", eps);
      y = packedGatedMlp(l, y, act, dense(l, "mlp.gate_up_proj"), dense(l, "mlp.down_proj"));
      x = g.add(x, rms(l, y, "post_mlp_layernorm", eps));
    }
    return lmHead(g, rms(g, g.gather(x, g.rowIndex), "model.norm", eps), c);
  },
});
