// Granite 3, dense and mixture of experts: Llama with four multipliers.
import type { Builder } from "../ir/builder.ts";
import type { Value } from "../ir/graph.ts";
import { architecture } from "./architecture.ts";
import { attention, embedding, gatedMlp, lmHead, moe, rms, separateProjections } from "./blocks.ts";
import { bool, float, int, type Values } from "./config.ts";
import { activation, attentionLayers, decoderKeys } from "./decoder.ts";

const keys = {
  ...decoderKeys,
  attention_bias: bool.optional,
  embedding_multiplier: float.default(1),
  attention_multiplier: float.default(1),
  residual_multiplier: float.default(1),
  logits_scaling: float.default(1),
};

function decoder(g: Builder, c: Values<typeof keys>, mlp: (l: Builder, x: Value) => Value): Value {
  const [eps, layers, scale] = [c.rms_norm_eps, attentionLayers(g, c), c.attention_multiplier];
  const addTo = (x: Value, y: Value) => g.add(x, g.scale(y, c.residual_multiplier));
  let x = g.scale(embedding(g, "model.embed_tokens", c), c.embedding_multiplier);
  for (const l of g.layers(c.num_hidden_layers, "model.layers")) {
    const projections = separateProjections(l, { qkv: c.attention_bias, out: c.attention_bias });
    const y = rms(l, x, "input_layernorm", eps);
    x = addTo(x, attention(l, y, { ...layers[l.index]!, projections, scale }));
    x = addTo(x, mlp(l, rms(l, x, "post_attention_layernorm", eps)));
  }
  const hidden = rms(g, g.gather(x, g.rowIndex), "model.norm", eps);
  return lmHead(g, hidden, { ...c, scale: 1 / c.logits_scaling });
}

export const granite = architecture("GraniteForCausalLM", {
  config: { ...keys, mlp_bias: bool.optional },
  build: (g, c) => decoder(g, c, (l, x) => gatedMlp(l, x, activation(c.hidden_act), "mlp", c.mlp_bias)),
});

export const graniteMoe = architecture("GraniteMoeForCausalLM", {
  config: { ...keys, num_experts_per_tok: int },
  build(g, c) {
    const act = activation(c.hidden_act);
    const route = { top: c.num_experts_per_tok, scoring: "top_softmax" as const };
    return decoder(g, c, (l, x) => {
      const router = l.weight("block_sparse_moe.router.layer");
      const gateUp = l.weight("block_sparse_moe.input_linear");
      return moe(l, x, { router, gateUp, down: l.weight("block_sparse_moe.output_linear"), act, route });
    });
  },
});
