// StableLM 1.6B, 3B and Zephyr: Llama with layer norms, of which a part of each head rotates.
import { architecture } from "./architecture.ts";
import { attention, embedding, gatedMlp, layerNorm, lmHead, separateProjections } from "./blocks.ts";
import { bool, float, refuseConfig } from "./config.ts";
import { activation, attentionLayers, decoderKeys } from "./decoder.ts";

export const stablelm = architecture("StableLmForCausalLM", {
  config: {
    ...decoderKeys,
    layer_norm_eps: float.default(1e-5),
    use_qkv_bias: bool.default(false),
    qk_layernorm: bool.default(false),
    use_parallel_residual: bool.default(false),
  },
  build(g, c) {
    if (c.qk_layernorm) refuseConfig("qk_layernorm", true, "false: norms of q and k are not supported");
    if (c.use_parallel_residual) refuseConfig("use_parallel_residual", true, "false: it is not supported");
    const [eps, act, layers] = [c.layer_norm_eps, activation(c.hidden_act), attentionLayers(g, c)];
    let x = embedding(g, "model.embed_tokens", c);
    for (const l of g.layers(c.num_hidden_layers, "model.layers")) {
      const projections = separateProjections(l, { qkv: c.use_qkv_bias, out: false });
      x = g.add(x, attention(l, layerNorm(l, x, "input_layernorm", eps), { ...layers[l.index]!, projections }));
      x = g.add(x, gatedMlp(l, layerNorm(l, x, "post_attention_layernorm", eps), act));
    }
    return lmHead(g, layerNorm(g, g.gather(x, g.rowIndex), "model.norm", eps), c);
  },
});
