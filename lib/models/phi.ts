// Phi 1, 1.5 and 2: attention and MLP side by side on one layer norm, biases everywhere, part of each head rotates.
import { architecture } from "./architecture.ts";
import { attention, dense, embedding, layerNorm, lmHead, plainMlp, separateProjections } from "./blocks.ts";
import { bool, float, refuseConfig, string } from "./config.ts";
import { activation, attentionLayers, decoderKeys } from "./decoder.ts";

export const phi = architecture("PhiForCausalLM", {
  config: {
    ...decoderKeys,
    hidden_act: string.default("gelu_new"),
    layer_norm_eps: float.default(1e-5),
    qk_layernorm: bool.default(false),
  },
  build(g, c) {
    if (c.qk_layernorm) refuseConfig("qk_layernorm", true, "false: norms of q and k are not supported");
    const [eps, act, layers] = [c.layer_norm_eps, activation(c.hidden_act), attentionLayers(g, c)];
    let x = embedding(g, "model.embed_tokens", c);
    for (const l of g.layers(c.num_hidden_layers, "model.layers")) {
      const y = layerNorm(l, x, "input_layernorm", eps);
      const projections = separateProjections(l, { qkv: true, out: true }, "dense");
      x = g.add(x, attention(l, y, { ...layers[l.index]!, projections }));
      x = g.add(x, plainMlp(l, y, act, dense(l, "mlp.fc1", true), dense(l, "mlp.fc2", true)));
    }
    return lmHead(g, layerNorm(g, g.gather(x, g.rowIndex), "model.final_layernorm", eps), c);
  },
});
