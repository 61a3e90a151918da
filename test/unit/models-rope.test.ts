// Rotation frequencies against those of an independent implementation, for every kind of scaling.
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { readKeys } from "../../lib/models/config.ts";
import { longRopeAfter } from "../../lib/models/index.ts";
import { ropeFrequencies, ropeKeys } from "../../lib/models/rope.ts";

interface Case {
  head_dim: number;
  config: { rope_theta: number; partial_rotary_factor: number; rope_scaling: Record<string, unknown> | null };
  inv_freq: number[][];
  factor: number[];
}

const cases: Case[] = JSON.parse(readFileSync(new URL("../fixtures/golden/rope.json", import.meta.url), "utf8"));

test("there are cases of every kind", () => {
  const kinds = new Set(cases.map(({ config }) => config.rope_scaling?.rope_type ?? "default"));
  expect([...kinds].sort()).toEqual(["default", "dynamic", "linear", "llama3", "longrope", "yarn"]);
});

for (const [i, { head_dim, config, inv_freq, factor }] of cases.entries()) {
  test(`case ${i}: ${config.rope_scaling?.rope_type ?? "default"}, base ${config.rope_theta}`, () => {
    const got = ropeFrequencies(readKeys(ropeKeys, config), head_dim);
    expect(got.invFreq.length).toBe(inv_freq.length);
    inv_freq.forEach((row, r) => {
      expect(got.invFreq[r]!.length).toBe(row.length);
      row.forEach((wanted, h) => {
        expect(Math.abs(got.invFreq[r]![h]! - wanted) / wanted).toBeLessThan(1e-6);
      });
      expect(got.factor[r]!).toBeCloseTo(factor[r]!, 6);
    });
  });
}

describe("refusals", () => {
  const base = { rope_theta: 10000, max_position_embeddings: 4096 };
  const compute =
    (config: object, headDim = 64) =>
    () =>
      ropeFrequencies(readKeys(ropeKeys, { ...base, ...config }), headDim);
  const scaled = (rope_scaling: object) => compute({ rope_scaling });
  const refusal = (key: string) =>
    expect.objectContaining({ code: "IX_MODEL_CONFIG", details: expect.objectContaining({ key }) });
  test.each([
    ["rope_scaling.factor", scaled({ rope_type: "linear" })],
    ["rope_scaling.factor", scaled({ rope_type: "linear", factor: 0 })],
    ["rope_scaling.factor", scaled({ rope_type: "yarn", factor: Number.NaN })],
    ["rope_scaling.low_freq_factor", scaled({ rope_type: "llama3", factor: 8, high_freq_factor: 4 })],
    [
      "rope_scaling.high_freq_factor",
      scaled({ rope_type: "llama3", factor: 8, low_freq_factor: 4, high_freq_factor: 4 }),
    ],
    [
      "rope_scaling.long_factor",
      scaled({ rope_type: "longrope", short_factor: Array(32).fill(1), long_factor: [1, 2] }),
    ],
    ["rope_scaling.short_factor[1]", scaled({ rope_type: "longrope", short_factor: [1, -1], long_factor: [1, 2] })],
    ["partial_rotary_factor", compute({ partial_rotary_factor: 1.5 })],
    ["partial_rotary_factor", compute({ partial_rotary_factor: 0.01 })],
    ["partial_rotary_factor", compute({}, 63)],
    ["rope_theta", compute({ rope_theta: -1 })],
    ["rope_theta", compute({ rope_theta: 1 })],
    ["rope_theta", compute({ rope_theta: "10000" })],
    ["max_position_embeddings", compute({ max_position_embeddings: 2 ** 40 })],
  ])("%s", (key, attempt) => {
    expect(attempt).toThrow(refusal(key));
  });
  test("an unknown kind of scaling", () => {
    const unsupported = expect.objectContaining({
      code: "IX_UNSUPPORTED_ARCHITECTURE",
      message: expect.stringContaining("spiral"),
    });
    expect(scaled({ rope_type: "spiral" })).toThrow(unsupported);
  });
});

test("longRopeAfter", () => {
  const longrope = { rope_type: "longrope", original_max_position_embeddings: 4096 };
  expect(longRopeAfter({ max_position_embeddings: 131072, rope_scaling: longrope })).toBe(4096);
  expect(longRopeAfter({ max_position_embeddings: 131072, rope_scaling: null })).toBe(Number.POSITIVE_INFINITY);
  expect(longRopeAfter({ n_positions: 1024 })).toBe(Number.POSITIVE_INFINITY);
});
