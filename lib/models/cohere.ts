// Command R and R7B: attention and MLP side by side on one layer norm, rotation of neighbouring columns, scaled logits.
import type { Builder } from "../ir/builder.ts";
import { architecture } from "./architecture.ts";
import {
  asRow,
  attention,
  embedding,
  gatedMlp,
  type HeadNorm,
  layerNorm,
  lmHead,
  separateProjections,
} from "./blocks.ts";
import { bool, float } from "./config.ts";
import { activation, attentionLayers, decoderKeys, windowDecoderKeys } from "./decoder.ts";

const ownKeys = { layer_norm_eps: float.default(1e-5), logit_scale: float, attention_bias: bool.optional };

export const cohere = architecture("CohereForCausalLM", {
  config: { ...decoderKeys, ...ownKeys, use_qk_norm: bool.default(false) },
  build(g, c) {
    const [eps, act, layers] = [c.layer_norm_eps, activation(c.hidden_act), attentionLayers(g, c, true)];
    let x = embedding(g, "model.embed_tokens", c);
    for (const l of g.layers(c.num_hidden_layers, "model.layers")) {
      const y = layerNorm(l, x, "input_layernorm", eps);
      const projections = separateProjections(l, { qkv: c.attention_bias, out: c.attention_bias });
      const qkNorm = c.use_qk_norm && { q: headNorm(l, "q_norm", eps), k: headNorm(l, "k_norm", eps) };
      x = g.add(x, attention(l, y, { ...layers[l.index]!, projections, ...(qkNorm && { qkNorm }) }));
      x = g.add(x, gatedMlp(l, y, act));
    }
    const hidden = layerNorm(g, g.gather(x, g.rowIndex), "model.norm", eps);
    return lmHead(g, hidden, { ...c, scale: c.logit_scale });
  },
});

/** Layer norm of each head with a weight of its own, [heads, headDim]. */
function headNorm(l: Builder, name: string, eps: number): HeadNorm {
  const weight = asRow(l.weight(`self_attn.${name}`));
  return (x, heads) => l.mul(l.layerNorm(x, undefined, undefined, eps, heads), weight);
}

export const cohere2 = architecture("Cohere2ForCausalLM", {
  config: { ...windowDecoderKeys, ...ownKeys },
  build(g, c) {
    const [eps, act, layers] = [c.layer_norm_eps, activation(c.hidden_act), attentionLayers(g, c, true)];
    let x = embedding(g, "model.embed_tokens", c);
    for (const l of g.layers(c.num_hidden_layers, "model.layers")) {
      const y = layerNorm(l, x, "input_layernorm", eps);
      const layer = layers[l.index]!;
      const projections = separateProjections(l, { qkv: c.attention_bias, out: c.attention_bias });
      const rope = layer.window > 0 ? layer.rope : undefined;
      x = g.add(x, attention(l, y, { ...layer, rope, projections }));
      x = g.add(x, gatedMlp(l, y, act));
    }
    const hidden = layerNorm(g, g.gather(x, g.rowIndex), "model.norm", eps);
    return lmHead(g, hidden, { ...c, scale: c.logit_scale });
  },
});
