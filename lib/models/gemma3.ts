// Gemma 3 (text): window layers rotate by a base of their own, q and k are normed head by head.
import { architecture } from "./architecture.ts";
import { attention, embedding, gatedMlp, lmHead, qkNormsPlusOne, rmsPlusOne } from "./blocks.ts";
import { bool, float, refuseConfig, string } from "./config.ts";
import { activation, headShape, layerCaches, layerWindows, rotation, windowDecoderKeys } from "./decoder.ts";

export const gemma3 = architecture("Gemma3ForCausalLM", {
  config: {
    ...windowDecoderKeys,
    hidden_activation: string.default("gelu_pytorch_tanh"),
    query_pre_attn_scalar: float,
    rope_local_base_freq: float.default(10000),
    attn_logit_softcapping: float.optional,
    final_logit_softcapping: float.optional,
    use_bidirectional_attention: bool.default(false),
  },
  build(g, c) {
    if (c.use_bidirectional_attention)
      refuseConfig("use_bidirectional_attention", true, "false in a model that generates");
    const [eps, act, shape, windows] = [c.rms_norm_eps, activation(c.hidden_activation), headShape(c), layerWindows(c)];
    const caches = layerCaches(g, windows, shape);
    const global = rotation(g, c, shape.headDim);
    const local = rotation(g, { ...c, rope_theta: c.rope_local_base_freq, rope_scaling: undefined }, shape.headDim);
    const options = { ...shape, scale: c.query_pre_attn_scalar ** -0.5, softcap: c.attn_logit_softcapping };
    let x = g.scale(embedding(g, "model.embed_tokens", c), Math.sqrt(c.hidden_size));
    for (const l of g.layers(c.num_hidden_layers, "model.layers")) {
      const rope = windows[l.index] === 0 ? global : local;
      const own = { cache: caches[l.index]!, rope, qkNorm: qkNormsPlusOne(l, eps) };
      let y = attention(l, rmsPlusOne(l, x, "input_layernorm", eps), { ...options, ...own });
      x = g.add(x, rmsPlusOne(l, y, "post_attention_layernorm", eps));
      y = gatedMlp(l, rmsPlusOne(l, x, "pre_feedforward_layernorm", eps), act);
      x = g.add(x, rmsPlusOne(l, y, "post_feedforward_layernorm", eps));
    }
    const hidden = rmsPlusOne(g, g.gather(x, g.rowIndex), "model.norm", eps);
    return lmHead(g, hidden, { ...c, softcap: c.final_logit_softcapping });
  },
});
