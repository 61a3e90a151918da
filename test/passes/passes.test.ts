// Passes on small graphs: what they rewrite, and that the interpreter's results stay the same.
import { describe, expect, it } from "vitest";
import { createBuilder } from "../../lib/ir/builder.ts";
import type { Graph } from "../../lib/ir/graph.ts";
import { interpret } from "../../lib/ir/interpret.ts";
import { printGraph } from "../../lib/ir/print.ts";
import { withSampleProgram } from "../../lib/ir/sample-program.ts";
import { decodePlan } from "../../lib/passes/decode.ts";
import { fold } from "../../lib/passes/fold.ts";
import { fuse } from "../../lib/passes/fuse.ts";
import { lower } from "../../lib/passes/index.ts";
import { lowerQuant } from "../../lib/passes/lower-quant.ts";
import { narrow } from "../../lib/passes/narrow.ts";
import { planMemory } from "../../lib/passes/plan-memory.ts";
import { printPlan } from "../../lib/passes/print-plan.ts";
import {
  availableOps,
  type KernelChoice,
  type KernelInfo,
  selectKernels,
  viewOps,
} from "../../lib/passes/select-kernels.ts";
import { verify } from "../../lib/passes/verify.ts";
import { allKernels, narrowKernels } from "./kernels.ts";
import { limits, runTiny, type TinyOptions, tinyModel } from "./tiny-model.ts";

const choose = (more: Partial<KernelChoice> = {}): KernelChoice => {
  return {
    kernels: allKernels,
    numerics: "f32",
    cacheType: "kv_f32",
    fallbackOps: new Set(),
    deterministic: false,
    ...more,
  };
};
const fused = (graph: Graph, choice = choose()) => fuse(lowerQuant(graph), availableOps(choice));
const opsOf = (graph: Graph) => graph.nodes.map(({ op }) => op);

describe("interpret before = after", () => {
  const variants: [string, TinyOptions][] = [
    ["plain", {}],
    ["q/k norms, biases", { qkNorm: true, bias: true }],
    ["tied, window layer", { tied: true, window: true }],
    ["experts", { experts: true, bias: true }],
    ["permuted q and k", { ropeHeads: true, bias: true, qkNorm: true }],
    ["mixed formats", { dtypes: { "layers.0.v_proj.weight": "q8_0", "layers.1.up_proj.weight": "bf16" } }],
  ];
  it.each(variants)("%s", (_, options) => {
    const { graph, tensor } = tinyModel(options);
    const expected = runTiny(graph, tensor);
    expect(expected.length).toBe(40 * 5);
    let current = graph;
    const passes: [string, (graph: Graph) => Graph][] = [
      ["verify", verify],
      ["lower-quant", lowerQuant],
      ["fuse", (g) => fuse(g, availableOps(choose()))],
      ["select-kernels", (g) => selectKernels(g, choose())],
      ["fold", fold],
    ];
    for (const [name, pass] of passes) {
      current = verify(pass(current));
      runTiny(current, tensor).forEach((value, i) => {
        expect(Math.abs(value - expected[i]!), `${name}, logit ${i}`).toBeLessThan(1e-5);
      });
    }
  });
});

describe("fuse", () => {
  it("takes every fused op in a plain decoder", () => {
    expect(opsOf(fused(tinyModel({ qkNorm: true }).graph))).toEqual([
      "rope_table",
      "embed",
      "rms_norm",
      ...["linear", "columns", "columns", "columns", "qk_norm_rope_kv_write", "attention", "linear", "add_rms_norm"],
      ...["linear", "gated_act", "linear", "add_rms_norm"],
      ...["linear", "columns", "columns", "columns", "qk_norm_rope_kv_write", "attention", "linear", "add_rms_norm"],
      ...["linear", "gated_act", "linear", "add", "gather", "rms_norm", "linear"],
    ]);
  });

  it("keeps linears of different formats apart", () => {
    const dtypes = { "layers.0.v_proj.weight": "q8_0", "layers.0.up_proj.weight": "bf16" };
    const ops = opsOf(fused(tinyModel({ dtypes }).graph));
    expect(ops.slice(3, 8)).toEqual(["linear", "columns", "columns", "linear", "qk_norm_rope_kv_write"]);
    expect(ops.filter((op) => op === "act_mul").length).toBe(1);
    expect(ops.filter((op) => op === "gated_act").length).toBe(1);
  });

  it("makes only ops that have kernels", () => {
    const missing = new Set(["gated_act", "qk_norm_rope_kv_write", "add_rms_norm"]);
    const kernels = allKernels.filter(({ signature }) => !missing.has(signature.split("(")[0]!));
    const graph = fused(tinyModel().graph, choose({ kernels }));
    expect(opsOf(graph).filter((op) => missing.has(op))).toEqual([]);
    expect(() => selectKernels(graph, choose({ kernels }))).not.toThrow();
  });

  it("leaves values alone that something else reads", () => {
    const { graph } = tinyModel();
    const gate = graph.nodes.find(({ op }) => op === "act_mul")!.operands[0]!;
    const rotated = graph.nodes.find(({ op }) => op === "attention")!.operands[0]!;
    const outputs = new Map([...graph.outputs, ["gate", gate], ["rotated", rotated]] as const);
    const ops = opsOf(fused({ ...graph, outputs }));
    expect(ops.filter((op) => op === "act_mul").length).toBe(1);
    expect(ops.filter((op) => op === "kv_write").length).toBe(1);
  });
});

describe("lower-quant", () => {
  it("stores norms and changed matrices in f32 and keeps block formats", () => {
    const checkpoint = new Map([
      ["q.weight", { dtype: "q8_0", shape: [4, 64] }],
      ["t.weight", { dtype: "q8_0", shape: [64, 64] }],
      ["n.weight", { dtype: "bf16", shape: [64] }],
      ["b.weight", { dtype: "bf16", shape: [64, 64] }],
    ]);
    const g = createBuilder(checkpoint);
    const x = g.rmsNorm(g.embed(g.tokens, g.transposed("b")), g.weight("n"), 1e-5);
    g.output("a", g.linear(g.linear(x, g.transposed("t")), g.weight("q")));
    g.output("b", g.linear(x, g.scaleWeight(g.weight("b"), 2)));
    const dtypes = lowerQuant(g.finish()).nodes.map(({ operands }) => operands[1]!.dtype);
    expect(dtypes).toEqual(["bf16", "f32", "f32", "q8_0", "f32"]);
  });

  it("refuses formats that nobody knows and rows that are not whole blocks", () => {
    const build = (dtype: string, columns: number) => {
      const g = createBuilder(new Map([["w.weight", { dtype, shape: [4, columns] }]]));
      g.output("x", g.embed(g.tokens, g.weight("w")));
      return () => lowerQuant(g.finish());
    };
    expect(build("iq4_xs", 256)).toThrow(expect.objectContaining({ code: "IX_UNSUPPORTED_FORMAT" }));
    expect(build("q4_k", 128)).toThrow(expect.objectContaining({ code: "IX_MODEL_FORMAT" }));
  });
});

describe("select-kernels", () => {
  const tagsOf = (graph: Graph, more: Partial<KernelChoice> = {}) =>
    selectKernels(fused(graph), choose(more)).nodes.flatMap(({ op, kernel, operands }) =>
      op === "linear" || op === "embed" ? [`${op} ${operands[1]!.dtype} ${allKernels[kernel!]!.tags}`] : [],
    );

  it("takes exact kernels, or with `fast` those of the format", () => {
    const names = [...tinyModel({ tied: true }).graph.nodes]
      .flatMap(({ operands }) => operands)
      .flatMap((v) => (v?.kind === "weight" ? [v.name] : []));
    const model = (dtype: string) =>
      tinyModel({ tied: true, dtypes: Object.fromEntries(names.map((name) => [name, dtype])) }).graph;
    expect(new Set(tagsOf(model("q8_0")))).toEqual(
      new Set(["embed p32_q8_0 numerics=f32", "linear p32_q8_0 numerics=f32"]),
    );
    expect(new Set(tagsOf(model("q8_0"), { numerics: "fast" }))).toEqual(
      new Set(["embed p32_q8_0 numerics=f32", "linear p32_q8_0 numerics=int8"]),
    );
    expect(new Set(tagsOf(model("bf16"), { numerics: "fast" }))).toEqual(
      new Set(["embed p32_bf16 numerics=f32", "linear p32_bf16 numerics=bf16"]),
    );
  });

  it("gives a tied matrix one layout that all its uses have", () => {
    const kernels = allKernels.filter(({ signature }) => !/^embed\(.*p32_bf16/.test(signature));
    const { graph } = tinyModel({ tied: true, dtypes: { "embed.weight": "bf16" } });
    const selected = selectKernels(fused(graph), choose({ kernels }));
    const used = selected.nodes.flatMap(({ operands }) => operands.filter((v) => v?.name === "embed.weight"));
    expect(used.length).toBe(2);
    expect(used[0]).toBe(used[1]);
    expect(used[0]!.dtype).toBe("p32_f32");
  });

  it("names op, types and what there is when a kernel is missing", () => {
    const kernels = allKernels.filter(({ signature }) => !signature.startsWith("linear("));
    expect(() => selectKernels(lowerQuant(tinyModel().graph), choose({ kernels }))).toThrow(
      /no kernel for linear\(x: f32, w: f32.*there are: none/,
    );
    const bf16 = allKernels.filter(({ signature }) => !signature.includes("kv_f32"));
    expect(() => selectKernels(lowerQuant(tinyModel().graph), choose({ kernels: bf16 }))).toThrow(
      expect.objectContaining({
        code: "IX_NO_KERNEL",
        message: expect.stringMatching(/kv_write\(cache: kv_f32.*there are: kv_write\(cache: kv_bf16/),
      }),
    );
  });

  it("falls back to another backend only for the ops that are listed", () => {
    const kernels = allKernels.map(
      (k): KernelInfo => (k.signature.startsWith("gather(") ? { ...k, backend: "cpu" } : k),
    );
    const graph = fused(tinyModel().graph);
    expect(() => selectKernels(graph, choose({ kernels }))).toThrow(/there are: cpu: gather/);
    const selected = selectKernels(graph, choose({ kernels, fallbackOps: new Set(["gather"]) }));
    expect(kernels[selected.nodes.find(({ op }) => op === "gather")!.kernel!]!.backend).toBe("cpu");
  });

  it("takes kernels that depend on the batch first, and none of them where results must not", () => {
    const isLinear = ({ signature }: KernelInfo) => signature.startsWith("linear(");
    const graph = fused(tinyModel().graph);
    const chosen = (kernels: KernelInfo[], deterministic: boolean) =>
      selectKernels(graph, choose({ kernels, deterministic }))
        .nodes.filter(({ op }) => op === "linear")
        .map(({ kernel }) => kernels[kernel!]!.tags);
    const faster = allKernels.filter(isLinear).map((k): KernelInfo => ({ ...k, tags: `${k.tags} order=batch`.trim() }));
    const both = [...allKernels, ...faster];
    expect(new Set(chosen(both, true).map((tags) => tags.includes("order=batch")))).toEqual(new Set([false]));
    expect(new Set(chosen(both, false).map((tags) => tags.includes("order=batch")))).toEqual(new Set([true]));
    const onlyFaster = [...allKernels.filter((k) => !isLinear(k)), ...faster];
    expect(() => chosen(onlyFaster, true)).toThrow(
      expect.objectContaining({
        code: "IX_NO_KERNEL",
        message: expect.stringMatching(/linear.*do not depend on the batch/),
      }),
    );
  });

  it("names both files when a kernel's interface is not its op's", () => {
    const wrong = [
      "rms_norm(x: f32[T,D], w: f32[D], groups: i32, eps: f32) -> f32[T,D]",
      "rms_norm(x: f32[T,D], w?: f32[D], groups: i32, eps: i32) -> f32[T,D]",
      "rms_norm(x: i32[T,D], w?: f32[D], groups: i32, eps: f32) -> f32[T,D]",
      "rms_norm(x: f32[T], w?: f32[D], groups: i32, eps: f32) -> f32[T,D]",
    ];
    for (const signature of wrong) {
      const kernels = [{ signature, tags: "", source: "csrc/cpu/norm/rms_norm.cpp" }];
      expect(() => availableOps(choose({ kernels }))).toThrow(
        /csrc\/cpu\/norm\/rms_norm.cpp and lib\/ir\/ops\/rms-norm.ts differ/,
      );
    }
  });
});

describe("narrow", () => {
  const projections = ["q", "k", "v", "o", "gate", "up", "down"];
  const names = [0, 1].flatMap((i) => projections.map((name) => `layers.${i}.${name}_proj.weight`));
  const dtypes = Object.fromEntries(["lm_head.weight", ...names].map((name) => [name, "bf16"]));
  const fast = choose({ kernels: narrowKernels, numerics: "fast" });
  const typesOf = (graph: Graph) =>
    graph.nodes.flatMap(({ op, outputs }) =>
      outputs.filter(({ kind }) => kind === "result").map((v) => `${op} ${v.dtype}`),
    );

  it("keeps in bf16 what its maker and all its readers can take, columns with what they are of", () => {
    const { graph, tensor } = tinyModel({ dtypes, qkNorm: true });
    const before = fused(graph, fast);
    const after = narrow(before, fast);
    const attention = [
      "linear bf16",
      "columns bf16",
      "columns bf16",
      "columns bf16",
      "qk_norm_rope_kv_write f32",
      "attention f32",
    ];
    const mlp = ["add_rms_norm f32", "add_rms_norm bf16", "linear bf16", "gated_act bf16", "linear bf16"];
    expect(typesOf(after)).toEqual([
      ...["rope_table f32", "embed f32", "rms_norm bf16", ...attention, "linear bf16", ...mlp],
      ...["add_rms_norm f32", "add_rms_norm bf16", ...attention, "linear bf16", ...mlp],
      ...["add f32", "gather f32", "rms_norm bf16", "linear f32"],
    ]);
    const [exact, rounded] = [runTiny(before, tensor), runTiny(verify(after), tensor)];
    const error = Math.max(...exact.map((value, i) => Math.abs(value - rounded[i]!)));
    expect(error).toBeGreaterThan(1e-5);
    expect(error).toBeLessThan(0.03 * Math.max(...exact.map(Math.abs)));
  });

  it("changes nothing where numerics are exact, kernels are missing or the host reads", () => {
    const graph = fused(tinyModel({ dtypes }).graph, fast);
    expect(narrow(graph, { ...fast, numerics: "f32" })).toBe(graph);
    expect(narrow(graph, { ...fast, kernels: allKernels })).toBe(graph);
    const norm = graph.nodes.find(({ op }) => op === "rms_norm")!.outputs[0]!;
    const read = narrow({ ...graph, outputs: new Map([...graph.outputs, ["hidden", norm]]) }, fast);
    expect(read.outputs.get("hidden")!.dtype).toBe("f32");
    const moreReaders = (op: string) => narrow(appended(graph, op, norm), fast).nodes.find((n) => n.op === "rms_norm")!;
    expect(moreReaders("scale").outputs[0]!.dtype).toBe("f32");
  });

  /** With a node more that reads a value. */
  function appended(graph: Graph, op: string, x: Graph["nodes"][number]["outputs"][number]): Graph {
    const output = { kind: "result", name: op, dtype: "f32", shape: x.shape } as const;
    const node = { op, operands: [x], attrs: { factor: 2 }, outputs: [output], name: op, program: "forward" } as const;
    return { ...graph, nodes: [...graph.nodes, node] };
  }

  it("halves the bytes in the plan, which reads back", () => {
    const { graph } = tinyModel({ dtypes, qkNorm: true });
    const options = { kernels: narrowKernels, limits, topLogprobs: 5 };
    const [exact, fastPlan] = [lower(graph, options), lower(graph, { ...options, numerics: "fast" })];
    expect(fastPlan.stats.arenaBytes).toBeLessThan(exact.stats.arenaBytes);
    const { programs, kernels } = decodePlan(fastPlan.plan);
    const rotation = programs[0]!.steps.find(({ kernel }) => kernels[kernel]!.signature.startsWith("qk_norm"))!;
    const [, q, k, v] = rotation.operands;
    expect([q, k, v].map((o) => o!.type)).toEqual(["bf16", "bf16", "bf16"]);
    expect([k!.offset - q!.offset, v!.offset - k!.offset]).toEqual([32 * 2, 16 * 2]);
    expect(printPlan(decodePlan(fastPlan.plan))).toMatch(/add_rms_norm\(f32\[T,32\]@\d+\/32, bf16\[T,32\]@/);
  });

  it("the interpreter rounds to nearest, ties to even", () => {
    const g = createBuilder(new Map([["w.weight", { dtype: "f32", shape: [2, 3] }]]));
    g.output("y", g.scale(g.embed(g.tokens, g.weight("w")), 1.5));
    const graph = g.finish();
    const embedded = { ...graph.nodes[0]!.outputs[0]!, dtype: "bf16" };
    const nodes = [
      { ...graph.nodes[0]!, outputs: [embedded] },
      { ...graph.nodes[1]!, operands: [embedded] },
    ] as Graph["nodes"];
    const values = Float32Array.of(1 + 2 ** -8, 1 + 3 * 2 ** -8, 1 + 2 ** -8 + 2 ** -20, -3.3, Number.NaN, 1e39);
    const tokens = { dims: [2], data: Int32Array.of(0, 1) };
    const out = interpret(
      { ...graph, nodes },
      { tensor: () => values, inputs: new Map([["tokens", tokens]]), caches: [] },
    );
    expect([...out.get("y")!.data]).toEqual(
      [1, 1 + 2 ** -6, 1 + 2 ** -7, -3.296875, Number.NaN, Number.POSITIVE_INFINITY].map((v) => v * 1.5),
    );
  });

  it("equal nodes of different types stay apart", () => {
    const g = createBuilder(new Map([["w.weight", { dtype: "f32", shape: [4, 2] }]]));
    const x = g.embed(g.tokens, g.weight("w"));
    g.output("y", g.add(g.scale(x, 5), g.scale(x, 5)));
    const graph = g.finish();
    const narrower = {
      ...graph.nodes[2]!.outputs[0]!,
      dtype: "bf16",
    } as (typeof graph.nodes)[number]["outputs"][number];
    const nodes = graph.nodes
      .with(2, { ...graph.nodes[2]!, outputs: [narrower] })
      .with(3, { ...graph.nodes[3]!, operands: graph.nodes[3]!.operands.with(1, narrower) });
    expect(opsOf(fold({ ...graph, nodes }))).toEqual(["embed", "scale", "scale", "add"]);
    expect(opsOf(fold(graph))).toEqual(["embed", "scale", "add"]);
  });
});

describe("fold", () => {
  it("computes constants, shares equal nodes and drops what nobody reads", () => {
    const g = createBuilder(new Map([["w.weight", { dtype: "f32", shape: [4, 2] }]]));
    const row = g.mul(g.constant("a", [1, 2], [1, 2]), g.constant("b", [1, 2], [3, 4]));
    const x = g.embed(g.tokens, g.weight("w"));
    g.scale(x, 5);
    g.output("y", g.add(g.add(x, row), g.add(x, row)));
    const folded = fold(g.finish());
    expect(opsOf(folded)).toEqual(["embed", "add", "add"]);
    const [sum, total] = folded.nodes.slice(1);
    expect(sum!.operands[1]).toMatchObject({ kind: "constant", data: Float32Array.of(3, 8) });
    expect(total!.operands).toEqual([sum!.outputs[0], sum!.outputs[0]]);
  });
});

describe("plan-memory", () => {
  it("never lets two living values overlap and reuses what is free", () => {
    const graph = selectKernels(
      fused(withSampleProgram(tinyModel({ experts: true, qkNorm: true }).graph, 5)),
      choose(),
    );
    const memory = planMemory(graph, limits);
    const root = new Map<unknown, unknown>();
    const lives = new Map<unknown, { first: number; last: number; start: number; end: number }>();
    graph.nodes.forEach((node, step) => {
      for (const value of node.operands) {
        const life = lives.get(root.get(value) ?? value);
        if (life) life.last = step;
      }
      for (const value of node.outputs) {
        const place = memory.arena.get(value);
        if (!place) continue;
        if (viewOps.has(node.op)) {
          const parent = root.get(node.operands[0]) ?? node.operands[0]!;
          root.set(value, parent);
          expect(place.stride).toBe(memory.arena.get(node.operands[0]!)!.stride);
          continue;
        }
        expect(place.offset % 64).toBe(0);
        expect(place.stride % 32).toBe(0);
        expect(place.stride).toBeGreaterThanOrEqual(value.shape[1] as number);
        const rows = value.shape[0] === "T" ? limits.maxTokens : limits.maxLogitRows;
        lives.set(value, { first: step, last: step, start: place.offset, end: place.offset + rows * place.stride * 4 });
      }
    });
    for (const value of graph.outputs.values()) lives.get(value)!.last = graph.nodes.length;
    const all = [...lives.values()];
    for (const a of all) {
      expect(a.end).toBeLessThanOrEqual(memory.arenaBytes);
      for (const b of all) {
        if (a === b || a.last < b.first || b.last < a.first) continue;
        expect(a.end <= b.start || b.end <= a.start).toBe(true);
      }
    }
    expect(memory.arenaBytes).toBeLessThan(all.reduce((sum, { start, end }) => sum + end - start, 0) / 3);
  });

  it("places inputs apart, with one value more for R and S", () => {
    const { inputs, inputBytes } = planMemory(tinyModel().graph, limits);
    let end = 0;
    for (const [, { offset, elements }] of inputs) {
      expect(offset % 64).toBe(0);
      expect(offset).toBeGreaterThanOrEqual(end);
      end = offset + 4 * elements;
    }
    expect(end).toBeLessThanOrEqual(inputBytes);
    expect([...inputs].find(([input]) => input.name === "seq_start")![1].elements).toBe(limits.maxSequences + 1);
  });
});

describe("texts", () => {
  const options = {
    qkNorm: true,
    bias: true,
    window: true,
    ropeHeads: true,
    dtypes: { "layers.0.down_proj.weight": "q8_0" },
  };

  it("are the same as ever for a graph as it was built", () => {
    expect(printGraph(tinyModel(options).graph)).toMatchSnapshot();
  });

  it("are the same as ever after each pass, and of the plan", () => {
    const { plan, dumps } = lower(tinyModel(options).graph, {
      kernels: allKernels,
      limits,
      numerics: "fast",
      topLogprobs: 5,
    });
    expect([...dumps.keys()]).toEqual([
      "verify",
      "lower-quant",
      "fuse",
      "narrow",
      "select-kernels",
      "fold",
      "plan-memory",
      "emit",
    ]);
    expect(dumps.get("fuse")!()).toMatchSnapshot();
    expect(dumps.get("plan-memory")!()).toMatchSnapshot();
    expect(printPlan(decodePlan(plan))).toMatchSnapshot();
  });
});

describe("lower", () => {
  it("refuses limits and cache types that cannot be", () => {
    const { graph } = tinyModel();
    const wrong = [
      { limits: { ...limits, maxTokens: Number.NaN } },
      { limits: { ...limits, maxBias: -1 } },
      { cacheType: "kv_bf16" as const, limits: { ...limits, blockTokens: 16 } },
      { numerics: "exact" as "f32" },
      { topLogprobs: 0 },
    ];
    for (const more of wrong) {
      expect(() => lower(graph, { kernels: allKernels, limits, ...more })).toThrow(
        expect.objectContaining({ code: "IX_INVALID_ARGUMENT" }),
      );
    }
  });
});
