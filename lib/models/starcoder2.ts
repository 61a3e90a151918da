// StarCoder 2: layer norms, biases, a plain MLP and a sliding window.
import { architecture } from "./architecture.ts";
import { attention, dense, embedding, layerNorm, lmHead, plainMlp, separateProjections } from "./blocks.ts";
import { bool, float, string } from "./config.ts";
import { activation, attentionLayers, windowDecoderKeys } from "./decoder.ts";

export const starcoder2 = architecture("Starcoder2ForCausalLM", {
  config: {
    ...windowDecoderKeys,
    hidden_act: string.default("gelu_pytorch_tanh"),
    norm_epsilon: float.default(1e-5),
    use_bias: bool.optional,
  },
  build(g, c) {
    const [eps, act, layers] = [c.norm_epsilon, activation(c.hidden_act), attentionLayers(g, c)];
    let x = embedding(g, "model.embed_tokens", c);
    for (const l of g.layers(c.num_hidden_layers, "model.layers")) {
      const projections = separateProjections(l, { qkv: c.use_bias, out: c.use_bias });
      x = g.add(x, attention(l, layerNorm(l, x, "input_layernorm", eps), { ...layers[l.index]!, projections }));
      const y = layerNorm(l, x, "post_attention_layernorm", eps);
      x = g.add(x, plainMlp(l, y, act, dense(l, "mlp.c_fc", c.use_bias), dense(l, "mlp.c_proj", c.use_bias)));
    }
    return lmHead(g, layerNorm(g, g.gather(x, g.rowIndex), "model.norm", eps), c);
  },
});
