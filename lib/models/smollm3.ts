// SmolLM 3: Llama with some layers that do not rotate.
import { architecture } from "./architecture.ts";
import { attention, embedding, gatedMlp, lmHead, rms, separateProjections } from "./blocks.ts";
import { bool, intWithin, list, refuseConfig } from "./config.ts";
import { activation, attentionLayers, windowDecoderKeys } from "./decoder.ts";

export const smollm3 = architecture("SmolLM3ForCausalLM", {
  config: {
    ...windowDecoderKeys,
    /** One item per layer: 1 rotates, 0 does not. */
    no_rope_layers: list(intWithin(0, 1)),
    attention_bias: bool.optional,
    mlp_bias: bool.optional,
  },
  build(g, c) {
    const [eps, act, layers] = [c.rms_norm_eps, activation(c.hidden_act), attentionLayers(g, c)];
    if (c.no_rope_layers.length !== layers.length) {
      refuseConfig("no_rope_layers", c.no_rope_layers.length, `a list of num_hidden_layers (${layers.length}) items`);
    }
    let x = embedding(g, "model.embed_tokens", c);
    for (const l of g.layers(c.num_hidden_layers, "model.layers")) {
      const layer = layers[l.index]!;
      const rope = c.no_rope_layers[l.index] === 1 ? layer.rope : undefined;
      const projections = separateProjections(l, { qkv: c.attention_bias, out: c.attention_bias });
      x = g.add(x, attention(l, rms(l, x, "input_layernorm", eps), { ...layer, rope, projections }));
      x = g.add(x, gatedMlp(l, rms(l, x, "post_attention_layernorm", eps), act, "mlp", c.mlp_bias));
    }
    return lmHead(g, rms(g, g.gather(x, g.rowIndex), "model.norm", eps), c);
  },
});
