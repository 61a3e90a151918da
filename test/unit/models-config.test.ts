// What builders refuse, and how layers are grouped: on real fixtures whose configuration is changed.

import { fileURLToPath } from "node:url";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { InferxError } from "../../lib/base/errors.ts";
import { describeTensors } from "../../lib/compile/tensors.ts";
import { openCheckpoint } from "../../lib/formats/checkpoint.ts";
import { createBuilder } from "../../lib/ir/builder.ts";
import { contextLength, findArchitecture } from "../../lib/models/index.ts";
import { type Loaded, load, run } from "./models-interpret.ts";

function build(name: string, change: Record<string, unknown> = {}) {
  const checkpoint = openCheckpoint(fileURLToPath(new URL(`../fixtures/golden/${name}`, import.meta.url)));
  const g = createBuilder(describeTensors(checkpoint));
  findArchitecture(checkpoint.architecture).build(g, { ...checkpoint.config, ...change });
  return g.finish();
}

function refusalOf(name: string, change: Record<string, unknown>): InferxError {
  try {
    build(name, change);
  } catch (error) {
    if (InferxError.is(error)) return error;
    throw error;
  }
  throw new Error(`${name} was built with ${JSON.stringify(change)}`);
}

describe("refusals name the key, the value and what is expected", () => {
  test.each<[string, string, unknown, string]>([
    ["llama", "hidden_size", undefined, "an integer of at least 1"],
    ["llama", "hidden_size", 65, "64, the width"],
    ["llama", "hidden_size", -64, "an integer of at least 1"],
    ["llama", "hidden_size", 64.5, "an integer of at least 1"],
    ["llama", "hidden_size", "64", "an integer of at least 1"],
    ["llama", "num_key_value_heads", 3, "a divisor of num_attention_heads (4)"],
    ["llama", "num_key_value_heads", 0, "an integer of at least 1"],
    ["llama", "num_hidden_layers", 1e9, "an integer from 1 to 4096"],
    ["llama", "head_dim", 2 ** 31, "an integer of at least 1"],
    ["llama", "head_dim", 2 ** 30, "at most 4096"],
    ["llama", "vocab_size", 511, "512, the rows"],
    ["llama", "rms_norm_eps", 0, "a number above 0"],
    ["llama", "rms_norm_eps", Number.NaN, "a number above 0"],
    ["llama", "rms_norm_eps", Number.POSITIVE_INFINITY, "a number above 0"],
    ["llama", "tie_word_embeddings", "yes", "true or false"],
    ["llama", "rope_scaling", [], "an object"],
    ["mistral", "sliding_window", 0, "an integer of at least 1"],
    ["gemma2", "layer_types", ["full_attention"], "a list of num_hidden_layers (4) items"],
    ["gemma2", "layer_types[3]", Array(4).fill("linear_attention"), `"full_attention" or "sliding_attention"`],
    ["gemma2", "sliding_window", undefined, "an integer of at least 1"],
    ["gemma2", "query_pre_attn_scalar", -1, "a number above 0"],
    ["qwen3_moe", "mlp_only_layers[0]", [-1], "an integer of at least 0"],
    ["smollm3", "no_rope_layers[1]", [1, 2, 0, 1], "an integer from 0 to 1"],
    ["smollm3", "no_rope_layers", [1, 1], "a list of num_hidden_layers (4) items"],
    ["gpt2", "n_head", 5, "a divisor of"],
  ])("%s: %s = %j", (name, key, value, wanted) => {
    const config = key.replace(/\[\d+\]$/, "");
    const change =
      key === "layer_types[3]"
        ? { [config]: [...Array(3).fill("full_attention"), "linear_attention"] }
        : { [config]: value };
    const { code, details, message } = refusalOf(name, change);
    expect(code).toBe("IX_MODEL_CONFIG");
    expect(message).toContain(wanted);
    expect(details.key).toBe(key);
  });

  test("heads that do not divide the hidden size where there is no head_dim", () => {
    const { details } = refusalOf("qwen2", { num_attention_heads: 3, num_key_value_heads: 1 });
    expect(details.key).toBe("num_attention_heads");
  });
  test("sizes that contradict the weights", () => {
    expect(refusalOf("qwen3", { head_dim: 16 }).code).toBe("IX_MODEL_CONFIG");
    expect(refusalOf("llama", { num_attention_heads: 8 }).code).toBe("IX_MODEL_CONFIG");
    expect(refusalOf("phi3", { num_key_value_heads: 1 }).code).toBe("IX_MODEL_CONFIG");
    expect(refusalOf("qwen3_moe", { num_experts_per_tok: 9 }).code).toBe("IX_MODEL_CONFIG");
  });
  test("tensors that the configuration asks for and the checkpoint lacks", () => {
    expect(refusalOf("llama", { attention_bias: true }).message).toContain("model.layers.0.self_attn.q_proj.bias");
    expect(refusalOf("llama", { num_hidden_layers: 3 }).code).toBe("IX_MODEL_FORMAT");
    expect(refusalOf("mixtral", { num_local_experts: 2 ** 31 - 1 }).code).toBe("IX_MODEL_FORMAT");
    expect(refusalOf("llama_rope_tied", { tie_word_embeddings: false }).message).toContain("lm_head");
  });
  test("an unknown activation", () => {
    const { code, message } = refusalOf("llama", { hidden_act: "snake" });
    expect([code, message]).toEqual(["IX_UNSUPPORTED_ARCHITECTURE", expect.stringContaining(`"snake"`)]);
  });
  test("an unknown architecture, with the known ones", () => {
    const attempt = () => findArchitecture("NoSuchModel");
    expect(attempt).toThrow(/NoSuchModel.*LlamaForCausalLM.*SmolLM3ForCausalLM/);
  });
  test("anything in place of any value ends in a typed error or a graph", () => {
    const names = ["llama", "gemma3_text", "phi3", "qwen3_moe", "gpt2", "smollm3"];
    const config = Object.fromEntries(
      names.map((name) => [
        name,
        openCheckpoint(fileURLToPath(new URL(`../fixtures/golden/${name}`, import.meta.url))).config,
      ]),
    );
    const changes = fc.constantFrom(...names).chain((name) => {
      const number = fc.oneof(fc.integer({ min: -4, max: 300 }), fc.constantFrom(2 ** 31 - 1, 2 ** 53, 1e300, 0.5));
      return fc.tuple(
        fc.constant(name),
        fc.constantFrom(...Object.keys(config[name]!)),
        fc.oneof(number, fc.jsonValue()),
      );
    });
    fc.assert(
      fc.property(changes, ([name, key, value]) => {
        try {
          expect(build(name, { [key]: value }).outputs.has("logits")).toBe(true);
        } catch (error) {
          if (!InferxError.is(error)) throw error;
          expect(["IX_MODEL_CONFIG", "IX_MODEL_FORMAT", "IX_UNSUPPORTED_ARCHITECTURE"]).toContain(error.code);
        }
      }),
      { numRuns: 400 },
    );
  });
});

describe("cache groups", () => {
  const groups = (name: string, change = {}) =>
    build(name, change).groups.map(({ kind, window, layers }) => `${kind} ${window} x${layers}`);
  test("one for all layers that see everything", () => expect(groups("llama")).toEqual(["full 0 x2"]));
  test("one for all layers of a window", () => expect(groups("mistral")).toEqual(["window 32 x2"]));
  test("one of each kind where they alternate", () => {
    expect(groups("gemma2")).toEqual(["window 16 x2", "full 0 x2"]);
    expect(groups("gemma3_text")).toEqual(["window 16 x3", "full 0 x1"]);
  });
  test("by layer_types where only some layers of qwen2 slide", () => {
    const layer_types = ["full_attention", "sliding_attention"];
    expect(groups("qwen2", { layer_types, sliding_window: 24 })).toEqual(["full 0 x1", "window 24 x1"]);
  });
});

describe("the same model as GGUF files store it", () => {
  const ids = [5, 80, 411, 12];
  const logits = (model: Loaded) => run(model, ids, [3])("logits", 3);
  const fixture = (name: string) => fileURLToPath(new URL(`../fixtures/golden/${name}`, import.meta.url));
  const rebuild = (name: string, tensors: Parameters<typeof createBuilder>[0], tensor: Loaded["tensor"]): Loaded => {
    const { architecture, config } = openCheckpoint(fixture(name));
    const g = createBuilder(tensors);
    findArchitecture(architecture).build(g, config);
    return { graph: g.finish(), config, tensor };
  };

  test("gpt2 matrices [out, in]", () => {
    const { config, tensor, graph } = load(fixture("gpt2"));
    const stored = describeTensors(openCheckpoint(fixture("gpt2")));
    const isConv = (name: string) => /\.c_(attn|proj|fc)\.weight$/.test(name);
    const turned = new Map(
      [...stored].map(([name, t]) => [name, isConv(name) ? { ...t, shape: t.shape.toReversed() } : t]),
    );
    const model = rebuild("gpt2", turned, (name) => {
      const [data, [rows, columns]] = [tensor(name), stored.get(name)!.shape as [number, number]];
      if (!isConv(name)) return data;
      return data.map((_, i) => data[(i % rows) * columns + Math.floor(i / rows)]!);
    });
    expect(logits(model)).toEqual(logits({ config, tensor, graph }));
  });

  test("gemma norms with the 1 added", () => {
    const model = load(fixture("gemma2"));
    const stored = describeTensors(openCheckpoint(fixture("gemma2")));
    const isNorm = (name: string) => name.endsWith("norm.weight");
    const added = new Map([...stored].map(([name, t]) => [name, { ...t, oneAdded: isNorm(name) }]));
    const tensor = (name: string) => (isNorm(name) ? model.tensor(name).map((v) => v + 1) : model.tensor(name));
    expect(logits(rebuild("gemma2", added, tensor))).toEqual(logits(model));
  });
});

test("layers with the same rotation share one table", () => {
  const tables = (name: string) => build(name).nodes.filter((node) => node.op === "rope_table").length;
  expect(["llama", "gemma3_text", "gpt2"].map(tables)).toEqual([1, 2, 0]);
});

test("contextLength", () => {
  expect(contextLength({ max_position_embeddings: 4096 })).toBe(4096);
  expect(contextLength({ n_positions: 1024 })).toBe(1024);
  expect(contextLength({})).toBe(Number.POSITIVE_INFINITY);
});
