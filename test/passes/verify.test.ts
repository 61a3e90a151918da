// Graphs and plan files that are not sound: refused with IX_PLAN, never a crash.
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { InferxError } from "../../lib/base/errors.ts";
import { createBuilder } from "../../lib/ir/builder.ts";
import type { Graph, Node, Value } from "../../lib/ir/graph.ts";
import { withSampleProgram } from "../../lib/ir/sample-program.ts";
import { parseSignature } from "../../lib/ir/signature.ts";
import { decodePlan } from "../../lib/passes/decode.ts";
import { lower } from "../../lib/passes/index.ts";
import { fnv1a64, headerBytes } from "../../lib/passes/plan-format.ts";
import { verify } from "../../lib/passes/verify.ts";
import { allKernels } from "./kernels.ts";
import { limits, tinyModel } from "./tiny-model.ts";

const { graph } = tinyModel({ qkNorm: true, bias: true });

/** The graph with one node exchanged. */
function mutate(find: (node: Node) => boolean, change: (node: Node) => Node): Graph {
  const at = graph.nodes.findIndex(find);
  expect(at).toBeGreaterThanOrEqual(0);
  return { ...graph, nodes: graph.nodes.with(at, change(graph.nodes[at]!)) };
}
const isOp = (op: string) => (node: Node) => node.op === op;
const withOperand = (i: number, value: Value | undefined) => (node: Node) => ({
  ...node,
  operands: node.operands.with(i, value),
});

const narrow = (value: Value) => ({ ...value, dtype: "bf16" }) as Value;

describe("verify", () => {
  const first = graph.nodes.find(isOp("linear"))!;
  const weight = first.operands[1] as Extract<Value, { kind: "weight" }>;
  const write = graph.nodes.find(isOp("kv_write"))!;
  const attention = graph.nodes.find(isOp("attention"))!;
  const swapped = graph.nodes.with(2, graph.nodes[3]!).with(3, graph.nodes[2]!);
  const sampled = withSampleProgram(graph, 4);
  const broken: [string, Graph, RegExp][] = [
    ["an unknown op", mutate(isOp("rope"), (n) => ({ ...n, op: "twist" })), /no op "twist"/],
    ["a missing operand", mutate(isOp("linear"), withOperand(1, undefined)), /operand w is missing/],
    [
      "an operand of another type",
      mutate(isOp("embed"), withOperand(0, first.operands[0])),
      /operand ids is result f32/,
    ],
    ["an operand of another shape", mutate(isOp("rms_norm"), withOperand(1, weight)), /w: \[32,32\], expected \[32\]/],
    ["a scalar that is not there", mutate(isOp("rope"), (n) => ({ ...n, attrs: {} })), /scalar heads/],
    [
      "a scalar that is not whole",
      mutate(isOp("rope"), (n) => ({ ...n, attrs: { heads: 1.5, interleaved: 0 } })),
      /must be an integer/,
    ],
    [
      "a result of another shape",
      mutate(isOp("add"), (n) => ({ ...n, outputs: [{ ...n.outputs[0]!, shape: ["T", 33] } as Value] })),
      /result 0 is/,
    ],
    ["too few results", mutate(isOp("add"), (n) => ({ ...n, outputs: [] })), /0 results/],
    ["a value read before it is made", { ...graph, nodes: swapped }, /before it is made/],
    ["a value made twice", { ...graph, nodes: [...graph.nodes, graph.nodes[1]!] }, /made twice/],
    ["an old cache state", mutate((n) => n === attention, withOperand(1, write.operands[0])), /reads an old state/],
    [
      "another layer's cache",
      mutate(isOp("kv_write"), (n) => ({ ...n, outputs: [{ ...n.outputs[0]!, layer: 1 } as Value] })),
      /not the cache/,
    ],
    ["a cache that nobody declared", { ...graph, groups: [] }, /no cache layer/],
    ["an input of another graph", { ...graph, inputs: graph.inputs.slice(1) }, /not among the graph's/],
    [
      "a weight without all its rows",
      mutate(isOp("linear"), withOperand(1, { ...weight, sources: [] })),
      /sources for 0 rows/,
    ],
    [
      "programs out of order",
      { ...sampled, nodes: [sampled.nodes.at(-1)!, ...graph.nodes] },
      /is read before|comes after/,
    ],
    [
      "an output that is narrow",
      {
        ...mutate(isOp("gather"), (n) => ({ ...n, outputs: [narrow(n.outputs[0]!)] })),
        outputs: new Map([["x", narrow(graph.nodes.find(isOp("gather"))!.outputs[0]!)]]),
      },
      /is read before|not the result|hosts do not read/,
    ],
    ["a narrow input of indices", mutate(isOp("gather"), withOperand(1, narrow(first.outputs[0]!))), /operand rows/],
    ["an output that nobody makes", { ...graph, outputs: new Map([["x", weight]]) }, /output x/],
  ];

  it.each(broken)("refuses %s", (_, mutated, message) => {
    expect(() => verify(mutated)).toThrow(
      expect.objectContaining({ code: "IX_PLAN", message: expect.stringMatching(message) }),
    );
  });

  it("accepts the graph itself", () => {
    expect(verify(graph)).toBe(graph);
    expect(verify(sampled)).toBe(sampled);
  });
});

describe("builder", () => {
  it("names the node and the operand that does not fit", () => {
    const g = createBuilder(
      new Map([
        ["a.weight", { dtype: "f32", shape: [4, 6] }],
        ["b.weight", { dtype: "f32", shape: [4, 5] }],
      ]),
    );
    const x = g.embed(g.tokens, g.weight("a"));
    const fails = (run: () => unknown, code: string, message: RegExp) =>
      expect(run).toThrow(expect.objectContaining({ code, message: expect.stringMatching(message) }));
    fails(
      () => g.scope("layers.3").linear(x, g.weight("b")),
      "IX_MODEL_CONFIG",
      /b\.weight \(linear\): operand w: \[4, 5\], but K is 6/,
    );
    fails(() => g.weight("c"), "IX_MODEL_FORMAT", /no tensor "c.weight"/);
    fails(() => g.rope(x, g.ropeTable([[1, 2, 3, 4]]), 1), "IX_MODEL_CONFIG", /cannot be rotated/);
    fails(() => g.concatRows([g.weight("a"), g.weight("b")]), "IX_MODEL_CONFIG", /cannot be joined/);
    fails(() => g.sliceRows(g.weight("a"), 3, 2), "IX_MODEL_CONFIG", /rows 3 \+ 2/);
    fails(() => g.act(x, "mish" as "silu"), "IX_MODEL_CONFIG", /mish/);
    fails(() => g.scale(x, Number.NaN), "IX_MODEL_CONFIG", /scalar factor/);
  });
});

describe("signature", () => {
  it("reads operands, scalars and results", () => {
    expect(parseSignature("f(a: f32[T,D], b?: p32_q8_0[N, K], c: kv_C[…], n: i32, x: f32) -> f32[T,1], c")).toEqual({
      op: "f",
      operands: [
        { name: "a", optional: false, type: "f32", dims: ["T", "D"] },
        { name: "b", optional: true, type: "p32_q8_0", dims: ["N", "K"] },
        { name: "c", optional: false, type: "kv_C", dims: [] },
      ],
      scalars: [
        { name: "n", type: "i32" },
        { name: "x", type: "f32" },
      ],
      results: [
        { type: "f32", dims: ["T", "1"] },
        { type: "kv_C", dims: [], inPlaceOf: "c" },
      ],
    });
  });

  it("refuses anything else with a typed error", () => {
    for (const text of [
      "",
      "f",
      "f()",
      "f(a) -> a",
      "f(a: f32[T) -> f32[T]",
      "f(n: i32, a: f32[T]) -> f32[T]",
      "f(a: f32[T]) -> b",
      "f(s: u8) -> f32[T]",
    ]) {
      expect(() => parseSignature(text), text).toThrow(expect.objectContaining({ code: "IX_NO_KERNEL" }));
    }
    fc.assert(
      fc.property(fc.string(), (text) => {
        try {
          parseSignature(text);
        } catch (error) {
          expect(InferxError.is(error)).toBe(true);
        }
      }),
    );
  });
});

describe("decodePlan", () => {
  const { plan } = lower(tinyModel({ tied: true, window: true, bias: true }).graph, {
    kernels: allKernels,
    limits,
    topLogprobs: 3,
    buildId: 77,
  });
  const refused = expect.objectContaining({ code: "IX_PLAN" });

  it("gives back what was emitted", () => {
    const decoded = decodePlan(plan);
    expect(decoded).toMatchObject({ buildId: 77, rank: 0, world: 1, bounds: [64, 4, 8] });
    expect(decoded.groups.map(({ kind, window, layers }) => [kind, window, layers])).toEqual([
      ["full", 0, 1],
      ["window", 3, 1],
    ]);
    expect(decoded.programs.map(({ name, steps }) => [name, steps.length])).toEqual([
      ["forward", 24],
      ["sample", 1],
    ]);
    expect([...decoded.outputs.map(({ name }) => name)]).toEqual([
      "logits",
      "token",
      "token_logprob",
      "top_tokens",
      "top_logprobs",
    ]);
    const qkv = decoded.weights.find(({ name }) => name === "layers.0.{q_proj,k_proj,v_proj}.weight")!;
    expect(qkv.sources.map(({ tensor, rowCount }) => [tensor, rowCount])).toEqual([
      ["layers.0.q_proj.weight", 32],
      ["layers.0.k_proj.weight", 16],
      ["layers.0.v_proj.weight", 16],
    ]);
    const norm = decoded.weights.find(({ name }) => name === "layers.0.norm1.weight")!;
    expect([norm.layout, norm.sources[0]!.addOne]).toEqual(["f32", true]);
    const bias = decoded.weights.find(({ name }) => name.endsWith("weight.bias"))!;
    expect(bias.sources.map(({ tensor }) => tensor)).toEqual(["layers.0.q_proj.bias", "", "layers.0.v_proj.bias"]);
  });

  it("the checksum is FNV-1a", () => {
    const hex = ([low, high]: [number, number]) =>
      high.toString(16).padStart(8, "0") + low.toString(16).padStart(8, "0");
    expect(hex(fnv1a64(new Uint8Array()))).toBe("cbf29ce484222325");
    expect(hex(fnv1a64(new TextEncoder().encode("a")))).toBe("af63dc4c8601ec8c");
    expect(hex(fnv1a64(new TextEncoder().encode("foobar")))).toBe("85944171f73967e8");
  });

  it("refuses every truncation", () => {
    fc.assert(
      fc.property(fc.nat(plan.length - 1), (length) => {
        expect(() => decodePlan(plan.slice(0, length))).toThrow(refused);
      }),
    );
  });

  it("refuses every flipped bit behind the build id", () => {
    fc.assert(
      fc.property(fc.integer({ min: headerBytes, max: plan.length - 1 }), fc.nat(7), (at, bit) => {
        const damaged = plan.slice();
        damaged[at]! ^= 1 << bit;
        expect(() => decodePlan(damaged)).toThrow(refused);
      }),
    );
  });

  it("decodes or refuses damage under a right checksum, without any other error", () => {
    let refusals = 0;
    fc.assert(
      fc.property(
        fc.integer({ min: headerBytes, max: plan.length - 1 }),
        fc.nat(255),
        fc.boolean(),
        (at, byte, header) => {
          const damaged = plan.slice();
          damaged[header ? headerBytes + (at % 224) : at] = byte;
          const [low, high] = fnv1a64(damaged.subarray(headerBytes));
          const view = new DataView(damaged.buffer);
          view.setUint32(32, low, true);
          view.setUint32(36, high, true);
          try {
            decodePlan(damaged);
          } catch (error) {
            refusals++;
            expect(InferxError.is(error) && error.code, String(error)).toBe("IX_PLAN");
          }
        },
      ),
      { numRuns: 500 },
    );
    expect(refusals).toBeGreaterThan(100);
  });
});
