// An architecture from outside the package, written with primitives only, gives what the built-in one gives.
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import type { Builder } from "../../lib/ir/builder.ts";
import type { Value, WeightValue } from "../../lib/ir/graph.ts";
import { asRow } from "../../lib/models/blocks.ts";
import { float, int } from "../../lib/models/config.ts";
import { architecture, architectures, findArchitecture } from "../../lib/models/index.ts";
import { load, run } from "./models-interpret.ts";

function rms(g: Builder, x: Value, w: WeightValue, eps: number): Value {
  const width = w.shape[0]!;
  const meanSquare = g.scale(g.primitive("reduce_sum", g.mul(x, x)), 1 / width);
  const root = g.primitive("sqrt", g.add(meanSquare, g.constant("eps", [1, 1], [eps])));
  return g.mul(g.primitive2("div", x, root), asRow(w));
}

const mine = architecture("MineForCausalLM", {
  config: {
    hidden_size: int,
    num_hidden_layers: int,
    num_attention_heads: int,
    num_key_value_heads: int,
    rms_norm_eps: float,
    rope_theta: float,
  },
  build(g, c) {
    const [heads, kvHeads, headDim, eps] = [
      c.num_attention_heads,
      c.num_key_value_heads,
      c.hidden_size / c.num_attention_heads,
      c.rms_norm_eps,
    ];
    const caches = g.cacheGroup({ kind: "full", layers: c.num_hidden_layers, kvHeads, headDim });
    const table = g.ropeTable([
      Float32Array.from({ length: headDim / 2 }, (_, i) => 1 / c.rope_theta ** ((2 * i) / headDim)),
    ]);
    let x = g.embed(g.tokens, g.weight("model.embed_tokens"));
    for (const l of g.layers(c.num_hidden_layers, "model.layers")) {
      let y = rms(l, x, l.weight("input_layernorm"), eps);
      const q = l.rope(l.project(y, "self_attn.q_proj"), table, heads);
      const cache = l.kvWrite(
        caches[l.index]!,
        l.rope(l.project(y, "self_attn.k_proj"), table, kvHeads),
        l.project(y, "self_attn.v_proj"),
      );
      x = l.add(x, l.project(l.attention(q, cache, { heads, scale: headDim ** -0.5 }), "self_attn.o_proj"));
      y = rms(l, x, l.weight("post_attention_layernorm"), eps);
      const gate = l.project(y, "mlp.gate_proj");
      const width = gate.shape[1] as number;
      const ones = l.constant("ones", [1, width], Array(width).fill(1));
      const silu = l.primitive2("div", gate, l.add(l.primitive("exp", l.primitive("neg", gate)), ones));
      x = l.add(x, l.project(l.mul(silu, l.project(y, "mlp.up_proj")), "mlp.down_proj"));
    }
    return g.linear(rms(g, g.gather(x, g.rowIndex), g.weight("model.norm"), eps), g.weight("lm_head"));
  },
});

test("agrees with llama", () => {
  const folder = fileURLToPath(new URL("../fixtures/golden/llama", import.meta.url));
  const asLlama = { names: ["LlamaForCausalLM"], build: mine.build };
  const ids = [3, 141, 59, 26, 5];
  const [own, builtIn] = [load(folder, undefined, [asLlama]), load(folder)].map((model) =>
    run(model, ids, [4])("logits", 4),
  );
  const worst = own!.reduce((most, logit, i) => Math.max(most, Math.abs(logit - builtIn![i]!)), 0);
  expect(worst).toBeLessThan(1e-5);
});

test("logits of rows that were not gathered are refused", () => {
  const wrong = architecture("LlamaForCausalLM", {
    config: {},
    build: (g) => g.linear(g.embed(g.tokens, g.weight("model.embed_tokens")), g.weight("lm_head")),
  });
  const folder = fileURLToPath(new URL("../fixtures/golden/llama", import.meta.url));
  expect(() => load(folder, undefined, [wrong])).toThrow(/returned \[T, 512\]/);
});

test("is found by its name, before those of the package", () => {
  expect(findArchitecture("MineForCausalLM", [mine])).toBe(mine);
  expect(findArchitecture("LlamaForCausalLM", [mine])).toBe(architectures[0]);
});
