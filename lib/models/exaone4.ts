// EXAONE 4: norms after attention and MLP, q and k normed head by head; where some layers look at a window, only those rotate.
import { architecture } from "./architecture.ts";
import { attention, embedding, gatedMlp, lmHead, qkNorms, rms } from "./blocks.ts";
import { activation, attentionLayers, windowDecoderKeys } from "./decoder.ts";

export const exaone4 = architecture("Exaone4ForCausalLM", {
  config: windowDecoderKeys,
  build(g, c) {
    const [eps, act, layers] = [c.rms_norm_eps, activation(c.hidden_act), attentionLayers(g, c)];
    let x = embedding(g, "model.embed_tokens", c);
    for (const l of g.layers(c.num_hidden_layers, "model.layers")) {
      const layer = layers[l.index]!;
      const rope = layer.window > 0 || c.sliding_window === undefined ? layer.rope : undefined;
      const y = attention(l, x, { ...layer, rope, qkNorm: qkNorms(l, eps) });
      x = g.add(x, rms(l, y, "post_attention_layernorm", eps));
      x = g.add(x, rms(l, gatedMlp(l, x, act), "post_feedforward_layernorm", eps));
    }
    return lmHead(g, rms(g, g.gather(x, g.rowIndex), "model.norm", eps), c);
  },
});
