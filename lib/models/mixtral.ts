// Mixtral: Mistral whose MLP is a mixture of experts, weighted among the chosen ones.
import { architecture } from "./architecture.ts";
import { attention, embedding, lmHead, moe, rms } from "./blocks.ts";
import { int } from "./config.ts";
import { activation, attentionLayers, windowDecoderKeys } from "./decoder.ts";

export const mixtral = architecture("MixtralForCausalLM", {
  config: { ...windowDecoderKeys, num_local_experts: int, num_experts_per_tok: int },
  build(g, c) {
    const [eps, act, layers] = [c.rms_norm_eps, activation(c.hidden_act), attentionLayers(g, c)];
    const route = { top: c.num_experts_per_tok, renormalize: true };
    let x = embedding(g, "model.embed_tokens", c);
    for (const l of g.layers(c.num_hidden_layers, "model.layers")) {
      x = g.add(x, attention(l, rms(l, x, "input_layernorm", eps), layers[l.index]!));
      const router = l.weight("block_sparse_moe.gate");
      const gateUp = l.experts("block_sparse_moe.experts", c.num_local_experts, ["w1", "w3"]);
      const down = l.experts("block_sparse_moe.experts", c.num_local_experts, ["w2"]);
      x = g.add(x, moe(l, rms(l, x, "post_attention_layernorm", eps), { router, gateUp, down, act, route }));
    }
    return lmHead(g, rms(g, g.gather(x, g.rowIndex), "model.norm", eps), c);
  },
});
