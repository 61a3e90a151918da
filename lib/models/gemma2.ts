// Gemma 2: every other layer looks at a window, norms before and after each part, soft caps on scores and logits.
import { architecture } from "./architecture.ts";
import { attention, embedding, gatedMlp, lmHead, rmsPlusOne } from "./blocks.ts";
import { float, string } from "./config.ts";
import { activation, attentionLayers, windowDecoderKeys } from "./decoder.ts";

export const gemma2 = architecture("Gemma2ForCausalLM", {
  config: {
    ...windowDecoderKeys,
    hidden_activation: string.default("gelu_pytorch_tanh"),
    query_pre_attn_scalar: float,
    attn_logit_softcapping: float.optional,
    final_logit_softcapping: float.optional,
  },
  build(g, c) {
    const [eps, act, layers] = [c.rms_norm_eps, activation(c.hidden_activation), attentionLayers(g, c)];
    const options = { scale: c.query_pre_attn_scalar ** -0.5, softcap: c.attn_logit_softcapping };
    let x = g.scale(embedding(g, "model.embed_tokens", c), Math.sqrt(c.hidden_size));
    for (const l of g.layers(c.num_hidden_layers, "model.layers")) {
      let y = attention(l, rmsPlusOne(l, x, "input_layernorm", eps), { ...layers[l.index]!, ...options });
      x = g.add(x, rmsPlusOne(l, y, "post_attention_layernorm", eps));
      y = gatedMlp(l, rmsPlusOne(l, x, "pre_feedforward_layernorm", eps), act);
      x = g.add(x, rmsPlusOne(l, y, "post_feedforward_layernorm", eps));
    }
    const hidden = rmsPlusOne(g, g.gather(x, g.rowIndex), "model.norm", eps);
    return lmHead(g, hidden, { ...c, softcap: c.final_logit_softcapping });
  },
});
