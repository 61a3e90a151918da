// Phi 3, 3.5 and 4: q, k, v in one matrix, gate and up in another; long contexts by two sets of rotations.
import { architecture } from "./architecture.ts";
import { attention, dense, embedding, lmHead, packedGatedMlp, packedProjections, rms } from "./blocks.ts";
import { activation, attentionLayers, windowDecoderKeys } from "./decoder.ts";

export const phi3 = architecture("Phi3ForCausalLM", {
  config: windowDecoderKeys,
  build(g, c) {
    const [eps, act, layers] = [c.rms_norm_eps, activation(c.hidden_act), attentionLayers(g, c)];
    let x = embedding(g, "model.embed_tokens", c);
    for (const l of g.layers(c.num_hidden_layers, "model.layers")) {
      const layer = layers[l.index]!;
      const projections = packedProjections(l, dense(l, "self_attn.qkv_proj"), dense(l, "self_attn.o_proj"), layer);
      x = g.add(x, attention(l, rms(l, x, "input_layernorm", eps), { ...layer, projections }));
      const y = rms(l, x, "post_attention_layernorm", eps);
      x = g.add(x, packedGatedMlp(l, y, act, dense(l, "mlp.gate_up_proj"), dense(l, "mlp.down_proj")));
    }
    return lmHead(g, rms(g, g.gather(x, g.rowIndex), "model.norm", eps), c);
  },
});
