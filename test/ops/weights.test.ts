// Derived weights: what lists of row sources mean. kernels.test.ts runs the same on a device.
import { describe, expect, it } from "vitest";
import { createBuilder } from "../../lib/ir/builder.ts";
import type { CheckpointTensor, WeightValue } from "../../lib/ir/graph.ts";
import { assembleWeight } from "../../lib/ir/weights.ts";

const counted = (count: number) => Float32Array.from({ length: count }, (_, i) => i);
const tensors: Record<string, CheckpointTensor & { data: Float32Array }> = {
  "a.weight": { dtype: "f32", shape: [3, 2], data: counted(6) },
  "b.weight": { dtype: "bf16", shape: [2, 2], data: counted(4).map((v) => v + 10) },
  "a.bias": { dtype: "f32", shape: [3], data: counted(3) },
  "q.weight": { dtype: "f32", shape: [8, 1], source: { ropeHeads: 2 }, data: counted(8) },
  "one.weight": { dtype: "f32", shape: [2], oneAdded: true, data: counted(2) },
  "m.experts.0.up.weight": { dtype: "f32", shape: [1, 2], source: { tensor: "stacked" }, data: counted(2) },
  "m.experts.1.up.weight": {
    dtype: "f32",
    shape: [1, 2],
    source: { tensor: "stacked", rowStart: 1 },
    data: counted(2),
  },
  "m.experts.0.gate.weight": { dtype: "f32", shape: [1, 2], data: Float32Array.of(20, 21) },
  "m.experts.1.gate.weight": { dtype: "f32", shape: [1, 2], data: Float32Array.of(30, 31) },
};
const data = new Map([
  ...Object.entries(tensors).map(([name, t]) => [name, t.data] as const),
  ["stacked", counted(4)] as const,
]);
const g = createBuilder(new Map(Object.entries(tensors)));
const values = (w: WeightValue) => [...assembleWeight(w, (name) => data.get(name)!)];

describe("weights", () => {
  it("are found with and without their suffix", () => {
    expect(g.weight("a").name).toBe("a.weight");
    expect(g.weight("a.bias").shape).toEqual([3]);
    expect(g.biasOptional("b")).toBeUndefined();
    expect([g.has("a"), g.has("c")]).toEqual([true, false]);
    expect(g.scope("m").scope("experts.1").weight("gate")).toBe(g.weight("m.experts.1.gate"));
  });

  it("join, slice and keep the common dtype", () => {
    const joined = g.concatRows([g.weight("a"), g.weight("b")]);
    expect([joined.shape, joined.dtype, values(joined)]).toEqual([[5, 2], "f32", [0, 1, 2, 3, 4, 5, 10, 11, 12, 13]]);
    const sliced = g.sliceRows(joined, 2, 2);
    expect([sliced.shape, values(sliced)]).toEqual([
      [2, 2],
      [4, 5, 10, 11],
    ]);
    expect(values(g.sliceRows(g.weight("a.bias"), 1, 2))).toEqual([1, 2]);
    const again = g.concatRows([g.sliceRows(g.weight("a"), 0, 1), g.sliceRows(g.weight("a"), 1, 2)]);
    expect(again.sources).toEqual(g.weight("a").sources);
  });

  it("transpose, scale and add one, unless the file has added it", () => {
    expect([g.transposed("a").shape, values(g.transposed("a"))]).toEqual([
      [2, 3],
      [0, 2, 4, 1, 3, 5],
    ]);
    expect(values(g.addOne(g.scaleWeight(g.weight("a.bias"), 2)))).toEqual([1, 3, 5]);
    expect(values(g.addOne(g.weight("one")))).toEqual([0, 1]);
  });

  it("undo the row order of GGUF's llama files, also for a part of the rows", () => {
    // per head (j, half) is stored: rows 0 2 of head 0 are its first half
    expect(values(g.weight("q"))).toEqual([0, 2, 1, 3, 4, 6, 5, 7]);
    expect(values(g.sliceRows(g.weight("q"), 1, 5))).toEqual([2, 1, 3, 4, 6]);
  });

  it("stack experts, each with its parts in order", () => {
    const stacked = g.scope("m").experts("experts", 2, ["gate", "up"]);
    expect([stacked.shape, values(stacked)]).toEqual([
      [2, 2, 2],
      [20, 21, 0, 1, 30, 31, 2, 3],
    ]);
    expect(g.experts("m.experts", 2, ["up"]).sources.length).toBe(1);
  });

  it("refuse tensors that lack rows", () => {
    expect(() => assembleWeight(g.weight("a"), () => counted(4))).toThrow(
      expect.objectContaining({ code: "IX_MODEL_FORMAT" }),
    );
  });
});
