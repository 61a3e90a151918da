// Qwen 3, dense and mixture of experts: q and k are normed head by head.
import type { Builder } from "../ir/builder.ts";
import type { Value } from "../ir/graph.ts";
import { architecture } from "./architecture.ts";
import {
  attention,
  embedding,
  gatedMlp,
  lmHead,
  moe,
  moeWeights,
  qkNorms,
  rms,
  separateProjections,
} from "./blocks.ts";
import { bool, type Values } from "./config.ts";
import { activation, attentionLayers, isSparse, routeOf, sparseKeys, windowDecoderKeys } from "./decoder.ts";

const keys = { ...windowDecoderKeys, attention_bias: bool.optional };

function decoder(g: Builder, c: Values<typeof keys>, mlp: (l: Builder, x: Value) => Value): Value {
  const [eps, layers] = [c.rms_norm_eps, attentionLayers(g, c)];
  let x = embedding(g, "model.embed_tokens", c);
  for (const l of g.layers(c.num_hidden_layers, "model.layers")) {
    const projections = separateProjections(l, { qkv: c.attention_bias, out: c.attention_bias });
    const options = { ...layers[l.index]!, projections, qkNorm: qkNorms(l, eps) };
    x = g.add(x, attention(l, rms(l, x, "input_layernorm", eps), options));
    x = g.add(x, mlp(l, rms(l, x, "post_attention_layernorm", eps)));
  }
  return lmHead(g, rms(g, g.gather(x, g.rowIndex), "model.norm", eps), c);
}

export const qwen3 = architecture("Qwen3ForCausalLM", {
  config: keys,
  build: (g, c) => decoder(g, c, (l, x) => gatedMlp(l, x, activation(c.hidden_act))),
});

export const qwen3Moe = architecture("Qwen3MoeForCausalLM", {
  config: { ...keys, ...sparseKeys },
  build(g, c) {
    const act = activation(c.hidden_act);
    return decoder(g, c, (l, x) =>
      isSparse(c, l.index)
        ? moe(l, x, { ...moeWeights(l, c.num_experts), act, route: routeOf(c) })
        : gatedMlp(l, x, act),
    );
  },
});
