// Qwen 3, dense and mixture of experts: q and k are normed head by head.
import type { Builder } from "../ir/builder.ts";
import type { Value } from "../ir/graph.ts";
import { architecture } from "./architecture.ts";
import { attention, embedding, gatedMlp, lmHead, moe, qkNorms, rms, separateProjections } from "./blocks.ts";
import { bool, int, intWithin, list, type Values } from "./config.ts";
import { activation, attentionLayers, windowDecoderKeys } from "./decoder.ts";

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
  config: {
    ...keys,
    num_experts: int,
    num_experts_per_tok: int,
    norm_topk_prob: bool.default(false),
    /** Layers without experts; of the others every `decoder_sparse_step`-th has them. */
    mlp_only_layers: list(intWithin(0)).default([]),
    decoder_sparse_step: int.default(1),
  },
  build(g, c) {
    const act = activation(c.hidden_act);
    const route = { top: c.num_experts_per_tok, renormalize: c.norm_topk_prob };
    return decoder(g, c, (l, x) => {
      const isSparse = !c.mlp_only_layers.includes(l.index) && (l.index + 1) % c.decoder_sparse_step === 0;
      return isSparse ? moe(l, x, { ...experts(l, c.num_experts), act, route }) : gatedMlp(l, x, act);
    });
  },
});

function experts(l: Builder, count: number) {
  return {
    router: l.weight("mlp.gate"),
    gateUp: l.experts("mlp.experts", count, ["gate_proj", "up_proj"]),
    down: l.experts("mlp.experts", count, ["down_proj"]),
  };
}
