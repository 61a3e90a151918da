// OLMoE: a mixture of experts whose q and k are normed across all heads together.
import { architecture } from "./architecture.ts";
import { attention, embedding, lmHead, moe, moeWeights, qkNorms, rms } from "./blocks.ts";
import { bool, float, int, refuseConfig } from "./config.ts";
import { activation, attentionLayers, decoderKeys } from "./decoder.ts";

export const olmoe = architecture("OlmoeForCausalLM", {
  config: {
    ...decoderKeys,
    num_experts: int,
    num_experts_per_tok: int,
    norm_topk_prob: bool.default(false),
    clip_qkv: float.optional,
  },
  build(g, c) {
    if (c.clip_qkv !== undefined) refuseConfig("clip_qkv", c.clip_qkv, "absent: clipping is not supported");
    const [eps, act, layers] = [c.rms_norm_eps, activation(c.hidden_act), attentionLayers(g, c)];
    const route = { top: c.num_experts_per_tok, renormalize: c.norm_topk_prob };
    let x = embedding(g, "model.embed_tokens", c);
    for (const l of g.layers(c.num_hidden_layers, "model.layers")) {
      const options = { ...layers[l.index]!, qkNorm: qkNorms(l, eps) };
      x = g.add(x, attention(l, rms(l, x, "input_layernorm", eps), options));
      const y = rms(l, x, "post_attention_layernorm", eps);
      x = g.add(x, moe(l, y, { ...moeWeights(l, c.num_experts), act, route }));
    }
    return lmHead(g, rms(g, g.gather(x, g.rowIndex), "model.norm", eps), c);
  },
});
