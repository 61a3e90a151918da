// Qwen 2 and 2.5, dense and mixture of experts: q, k and v have biases; the upper layers may look at a window.
import type { Builder } from "../ir/builder.ts";
import type { Value } from "../ir/graph.ts";
import { architecture } from "./architecture.ts";
import { attention, embedding, gatedMlp, lmHead, moe, moeWeights, rms, separateProjections } from "./blocks.ts";
import type { Values } from "./config.ts";
import { activation, attentionLayers, isSparse, routeOf, sparseKeys, windowDecoderKeys } from "./decoder.ts";

function decoder(g: Builder, c: Values<typeof windowDecoderKeys>, mlp: (l: Builder, x: Value) => Value): Value {
  const [eps, layers] = [c.rms_norm_eps, attentionLayers(g, c)];
  let x = embedding(g, "model.embed_tokens", c);
  for (const l of g.layers(c.num_hidden_layers, "model.layers")) {
    const projections = separateProjections(l, { qkv: true, out: false });
    x = g.add(x, attention(l, rms(l, x, "input_layernorm", eps), { ...layers[l.index]!, projections }));
    x = g.add(x, mlp(l, rms(l, x, "post_attention_layernorm", eps)));
  }
  return lmHead(g, rms(g, g.gather(x, g.rowIndex), "model.norm", eps), c);
}

export const qwen2 = architecture("Qwen2ForCausalLM", {
  config: windowDecoderKeys,
  build: (g, c) => decoder(g, c, (l, x) => gatedMlp(l, x, activation(c.hidden_act))),
});

/** Beside the chosen experts every token goes through a shared one, weighted by a gate of its own. */
export const qwen2Moe = architecture("Qwen2MoeForCausalLM", {
  config: { ...windowDecoderKeys, ...sparseKeys },
  build(g, c) {
    const act = activation(c.hidden_act);
    return decoder(g, c, (l, x) => {
      if (!isSparse(c, l.index)) return gatedMlp(l, x, act);
      const routed = moe(l, x, { ...moeWeights(l, c.num_experts), act, route: routeOf(c) });
      const gate = g.act(g.linear(x, l.weight("mlp.shared_expert_gate")), "sigmoid");
      return g.add(routed, g.mul(gatedMlp(l, x, act, "mlp.shared_expert"), gate));
    });
  },
});
