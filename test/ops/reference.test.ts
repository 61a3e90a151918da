// The reference evaluations against formulas written another way: whole-matrix loops, complex numbers, published test vectors.
import { existsSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { ops } from "../../lib/ir/ops/index.ts";
import type { Tensor } from "../../lib/ir/ops/op.ts";
import { gumbel, philox, processRow } from "../../lib/ir/ops/sample.ts";
import { opCases, randomNumbers, referenceOutputs, sizes } from "./cases.ts";

const cases = opCases();
const f32 = (dims: number[], data: ArrayLike<number>): Tensor => ({ dims, data: Float32Array.from(data) });
const i32 = (dims: number[], data: ArrayLike<number>): Tensor => ({ dims, data: Int32Array.from(data) });
const evaluate = (op: string, operands: Record<string, Tensor>, attrs: Record<string, number> = {}) =>
  ops
    .get(op)!
    .evaluate(operands, attrs)
    .map(({ data }) => [...data]);

const random = randomNumbers(99);
const floats = (count: number) => Array.from({ length: count }, () => Math.fround(2 * random() - 1));

function expectClose(actual: ArrayLike<number>, expected: ArrayLike<number>, tolerance = 1e-6): void {
  expect(actual.length).toBe(expected.length);
  for (let i = 0; i < expected.length; i++) {
    expect(Math.abs(actual[i]! - expected[i]!), `element ${i}: ${actual[i]} for ${expected[i]}`).toBeLessThanOrEqual(
      tolerance * Math.max(1, Math.abs(expected[i]!)),
    );
  }
}

describe("op cases", () => {
  it.each(cases.map((c) => [c.name, c] as const))("%s runs and gives finite numbers", (_, c) => {
    const outputs = referenceOutputs(c);
    expect([...outputs.keys()]).toEqual([...c.graph.outputs.keys()]);
    for (const [name, { dims, data }] of outputs) {
      const shape = c.graph.outputs.get(name)!.shape.map((dim) => (typeof dim === "number" ? dim : sizes[dim as "T"]));
      expect(dims).toEqual(shape);
      expect(data.length).toBe(shape.reduce((a, b) => a * b));
      expect([...data].every(Number.isFinite)).toBe(true);
      expect([...data].some((v) => v !== 0)).toBe(true);
    }
  });

  it("cover every op that has a kernel, but sample and kv_write, which the others run through", () => {
    const covered = new Set(cases.map(({ op }) => op));
    expect([...ops.keys()].filter((op) => !covered.has(op)).sort()).toEqual(["columns", "kv_write", "sample"]);
  });
});

describe("matrices", () => {
  const [rows, columns, out] = [3, 7, 5];
  const [x, w, bias] = [floats(rows * columns), floats(out * columns), floats(out)];
  const product = (k: number, n: number) =>
    x.slice(k * columns, (k + 1) * columns).reduce((sum, v, i) => sum + v * w[n * columns + i]!, 0);

  it("linear is x w^T + bias", () => {
    const expected = Array.from(
      { length: rows * out },
      (_, i) => product(Math.floor(i / out), i % out) + bias[i % out]!,
    );
    expectClose(
      evaluate("linear", { x: f32([rows, columns], x), w: f32([out, columns], w), bias: f32([out], bias) })[0]!,
      expected,
    );
  });

  it("moe_linear is the linear of each chosen expert", () => {
    const experts = floats(2 * out * columns);
    const choice = [1, 0, 0, 1, -1, 1];
    const [y] = evaluate(
      "moe_linear",
      { x: f32([rows, columns], x), experts: i32([rows, 2], choice), w: f32([2, out, columns], experts) },
      { per_slot: 0 },
    );
    choice.forEach((e, slot) => {
      const t = Math.floor(slot / 2);
      const own = f32(
        [out, columns],
        e < 0 ? new Float32Array(out * columns) : experts.slice(e * out * columns, (e + 1) * out * columns),
      );
      const [expected] = evaluate("linear", { x: f32([1, columns], x.slice(t * columns, (t + 1) * columns)), w: own });
      expectClose(y!.slice(slot * out, (slot + 1) * out), expected!);
    });
  });

  it("moe_combine adds in slot order, moe_route breaks ties by the lowest index", () => {
    expect(evaluate("moe_combine", { y: f32([1, 4], [1, 2, 10, 20]), weights: f32([1, 2], [0.5, 0.25]) })).toEqual([
      [3, 6],
    ]);
    const route = (scoring: number, renormalize: number) =>
      evaluate("moe_route", { logits: f32([1, 4], [1, 2, 2, 0]) }, { top: 2, scoring, renormalize, factor: 2 });
    const all = [1, 2, 2, 0].map(Math.exp);
    const share = all[1]! / all.reduce((a, b) => a + b);
    expect(route(0, 0)[0]).toEqual([1, 2]);
    expectClose(route(0, 0)[1]!, [2 * share, 2 * share]);
    expectClose(route(0, 1)[1]!, [1, 1]);
    expectClose(route(1, 0)[1]!, [1, 1]);
    expectClose(route(2, 0)[1]!, [2 / (1 + Math.exp(-2)), 2 / (1 + Math.exp(-2))]);
  });
});

describe("rows", () => {
  it("norms have unit size, zero mean and the same result group by group", () => {
    const x = floats(24);
    const [whole] = evaluate("layer_norm", { x: f32([1, 24], x) }, { groups: 1, eps: 0 });
    expectClose([whole!.reduce((a, v) => a + v, 0) / 24, whole!.reduce((a, v) => a + v * v, 0) / 24], [0, 1]);
    const [grouped] = evaluate("rms_norm", { x: f32([2, 12], x), w: f32([4], [1, 2, 3, 4]) }, { groups: 3, eps: 1e-3 });
    const [single] = evaluate("rms_norm", { x: f32([6, 4], x), w: f32([4], [1, 2, 3, 4]) }, { groups: 1, eps: 1e-3 });
    expect(grouped).toEqual(single);
    expectClose(
      single!.slice(0, 4),
      x.slice(0, 4).map((v, i) => ((v * (i + 1)) / Math.hypot(...x.slice(0, 4), Math.sqrt(4e-3))) * 2),
    );
  });

  it("fused ops equal their parts", () => {
    const [a, b, w] = [f32([2, 6], floats(12)), f32([2, 6], floats(12)), f32([6], floats(6))];
    const [sum] = evaluate("add", { a, b });
    expect(evaluate("add_rms_norm", { a, b, w }, { eps: 1e-5 })).toEqual([
      sum,
      evaluate("rms_norm", { x: f32([2, 6], sum!), w }, { groups: 1, eps: 1e-5 })[0],
    ]);
    const gate = f32(
      [2, 3],
      [0, 1, 2, 6, 7, 8].map((i) => a.data[i]!),
    );
    const up = f32(
      [2, 3],
      [3, 4, 5, 9, 10, 11].map((i) => a.data[i]!),
    );
    expect(evaluate("gated_act", { x: a }, { groups: 1, kind: 1 })).toEqual(
      evaluate("act_mul", { gate, up }, { kind: 1 }),
    );
  });

  it("activations at known points", () => {
    const at = (kind: number, v: number) => evaluate("act", { x: f32([1, 1], [v]) }, { kind })[0]![0]!;
    expectClose([at(0, 1), at(1, 1), at(2, 1), at(4, 1)], [0.7310585786, 0.8413447461, 0.8411919906, 0.8457957659]);
    expectClose(
      [at(1, -3), at(1, 4.5), at(1, -10), at(3, -2), at(5, 0), at(6, 0.5)],
      [-0.0040496941, 4.4999847107, 0, 0, 0.5, 0.4621171573],
      1e-7,
    );
  });

  it("rope turns pairs as complex numbers, and relative positions alone decide products", () => {
    const table = (position: number) => {
      const operands = {
        positions: i32([1], [position]),
        row: i32([1], [0]),
        inv_freq: f32([1, 2], [1, 0.1]),
        factor: f32([1], [1]),
      };
      return f32([1, 4], evaluate("rope_table", operands)[0]!);
    };
    const [q, k] = [floats(6), floats(6)];
    const turned = (x: number[], position: number, interleaved: number) =>
      evaluate("rope", { x: f32([1, 6], x), table: table(position) }, { heads: 1, interleaved })[0]!;
    const angle = 3;
    expectClose(turned(q, angle, 0), [
      q[0]! * Math.cos(3) - q[2]! * Math.sin(3),
      q[1]! * Math.cos(0.3) - q[3]! * Math.sin(0.3),
      q[2]! * Math.cos(3) + q[0]! * Math.sin(3),
      q[3]! * Math.cos(0.3) + q[1]! * Math.sin(0.3),
      q[4]!,
      q[5]!,
    ]);
    const dot = (a: number[], b: number[]) => a.reduce((sum, v, i) => sum + v * b[i]!, 0);
    for (const interleaved of [0, 1]) {
      expectClose(
        [dot(turned(q, 9, interleaved), turned(k, 4, interleaved))],
        [dot(turned(q, 25, interleaved), turned(k, 20, interleaved))],
        1e-5,
      );
    }
  });
});

describe("attention", () => {
  const [heads, kvHeads, width, context, chunk] = [4, 2, 6, 11, 4];
  const [q, k, v] = [
    floats(context * heads * width),
    floats(context * kvHeads * width),
    floats(context * kvHeads * width),
  ];

  /** All positions at once, no cache. */
  function naive(window: number, softcap: number, sinks?: number[]): number[] {
    const out: number[] = [];
    for (let t = 0; t < context; t++) {
      for (let h = 0; h < heads; h++) {
        const kv = Math.floor((h * kvHeads) / heads);
        const seen = Array.from({ length: context }, (_, p) => p).filter(
          (p) => p <= t && (window === 0 || p > t - window),
        );
        const scores = seen.map((p) => {
          let sum = 0;
          for (let d = 0; d < width; d++) sum += q[(t * heads + h) * width + d]! * k[(p * kvHeads + kv) * width + d]!;
          return softcap > 0 ? softcap * Math.tanh((sum * 0.5) / softcap) : sum * 0.5;
        });
        const weights = scores.map(Math.exp);
        const total = weights.reduce((a, b) => a + b, sinks ? Math.exp(sinks[h]!) : 0);
        for (let d = 0; d < width; d++) {
          out.push(seen.reduce((sum, p, i) => sum + (weights[i]! / total) * v[(p * kvHeads + kv) * width + d]!, 0));
        }
      }
    }
    return out;
  }

  it.each([
    ["full", 0, 0, undefined],
    ["window of 3", 3, 0, undefined],
    ["softcap", 0, 0.2, undefined],
    ["sinks", 5, 0, [0.1, -1, 2, 0]],
  ] as const)("%s: chunks through scattered blocks equal one pass", (_, window, softcap, sinks) => {
    const cache = f32([4, 4, 2, kvHeads, width], new Float32Array(4 * 4 * 2 * kvHeads * width));
    const table = [3, 0, 2];
    const out: number[] = [];
    for (let start = 0; start < context; start += chunk) {
      const count = Math.min(chunk, context - start);
      const part = (data: number[], columns: number) =>
        f32([count, columns], data.slice(start * columns, (start + count) * columns));
      const slots = i32(
        [count],
        Array.from({ length: count }, (_, i) => table[Math.floor((start + i) / 4)]! * 4 + ((start + i) % 4)),
      );
      evaluate("kv_write", { cache, k: part(k, kvHeads * width), v: part(v, kvHeads * width), slots });
      const sequence = {
        seq_start: i32([2], [0, count]),
        seq_context: i32([1], [start + count]),
        seq_row: i32([1], [1]),
        block_table: i32([2, 3], [-1, -1, -1, ...table]),
      };
      const more = sinks ? { sinks: f32([heads], sinks) } : {};
      out.push(
        ...evaluate(
          "attention",
          { q: part(q, heads * width), cache, ...sequence, ...more },
          { heads, scale: 0.5, window, softcap },
        )[0]!,
      );
    }
    expectClose(out, naive(window, softcap, sinks && [...sinks]));
  });

  it("slot -1 stores nothing", () => {
    const cache = f32([1, 2, 2, 1, 2], new Float32Array(8));
    const x = f32([2, 2], [1, 2, 3, 4]);
    expect(evaluate("kv_write", { cache, k: x, v: x, slots: i32([2], [-1, 1]) })[0]).toEqual([0, 0, 0, 0, 3, 4, 3, 4]);
  });

  it("qk_norm_rope_kv_write is norm, rope and kv_write", () => {
    const table = f32([1, 4], [Math.cos(1), Math.cos(2), Math.sin(1), Math.sin(2)]);
    const empty = () => f32([1, 1, 2, kvHeads, width], new Float32Array(2 * kvHeads * width));
    const [qRow, kRow] = [
      f32([1, heads * width], q.slice(0, heads * width)),
      f32([1, kvHeads * width], k.slice(0, kvHeads * width)),
    ];
    const [qw, kw, slots] = [f32([width], floats(width)), f32([width], floats(width)), i32([1], [0])];
    const attrs = { heads, interleaved: 1, eps: 1e-5 };
    const fused = evaluate(
      "qk_norm_rope_kv_write",
      { cache: empty(), q: qRow, k: kRow, v: kRow, table, slots, qw, kw },
      attrs,
    );
    const prepared = (x: Tensor, w: Tensor, groups: number) => {
      const [normed] = evaluate("rms_norm", { x, w }, { groups, eps: 1e-5 });
      return f32(
        x.dims as number[],
        evaluate("rope", { x: f32(x.dims as number[], normed!), table }, { heads: groups, interleaved: 1 })[0]!,
      );
    };
    expectClose(fused[0]!, prepared(qRow, qw, heads).data);
    expectClose(
      fused[1]!,
      evaluate("kv_write", { cache: empty(), k: prepared(kRow, kw, kvHeads), v: kRow, slots })[0]!,
    );
  });
});

describe("sample", () => {
  // Random123's known answers for philox4x32-10
  it.each([
    [
      [0, 0, 0, 0],
      [0, 0],
      [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8],
    ],
    [
      [-1, -1, -1, -1],
      [-1, -1],
      [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd],
    ],
    [
      [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
      [0xa4093822, 0x299f31d0],
      [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
    ],
  ])("philox %j with key %j", (counter, key, expected) => {
    expect(
      philox(
        counter.map((c) => c >>> 0),
        key.map((c) => c >>> 0),
      ),
    ).toEqual(expected);
  });

  interface Row {
    logits: number[];
    temperature?: number;
    topK?: number;
    topP?: number;
    minP?: number;
    repetition?: number;
    presence?: number;
    frequency?: number;
    bias?: Record<string, number>;
    history?: number[];
    seed?: number[];
    position?: number;
    target?: number;
    logprobs?: number;
  }

  function operands(row: Row): Record<string, Tensor> {
    const bias = Object.entries(row.bias ?? {});
    const one = (value: number) => f32([1], [value]);
    const count = (value: number) => i32([1], [value]);
    return {
      logits: f32([1, row.logits.length], row.logits),
      row_state: count(row.history ? 0 : -1),
      position: count(row.position ?? 5),
      seed: { dims: [1, 2], data: Uint32Array.from(row.seed ?? [1, 2]) },
      sample_index: count(0),
      target: count(row.target ?? -1),
      temperature: one(row.temperature ?? 1),
      top_k: count(row.topK ?? 0),
      top_p: one(row.topP ?? 1),
      min_p: one(row.minP ?? 0),
      repetition: one(row.repetition ?? 1),
      presence: one(row.presence ?? 0),
      frequency: one(row.frequency ?? 0),
      num_logprobs: count(row.logprobs ?? -1),
      bias_start: i32([2], [0, bias.length]),
      bias_token: i32(
        [bias.length],
        bias.map(([token]) => Number(token)),
      ),
      bias_value: f32(
        [bias.length],
        bias.map(([, value]) => value),
      ),
      history: { dims: [1, row.logits.length], data: Uint32Array.from(row.history ?? row.logits.map(() => 0)) },
      mask_row: count(-1),
    };
  }
  const logits = [2, 1, 0.5, 0, -0.5, -1, -2, 3];

  it("draws with the frequencies of the distribution, the same for the same seed and position", () => {
    const draws = 4000;
    const counts = logits.map(() => 0);
    for (let position = 0; position < draws; position++)
      counts[evaluate("sample", operands({ logits, position }), { top: 1 })[0]![0]!]!++;
    const weights = logits.map(Math.exp);
    const total = weights.reduce((a, b) => a + b);
    counts.forEach((count, v) => {
      const p = weights[v]! / total;
      expect(Math.abs(count / draws - p)).toBeLessThan(4 * Math.sqrt((p * (1 - p)) / draws));
    });
    expect(gumbel([1, 2], 3, 0, 17)).toBe(gumbel([1, 2], 3, 0, 17));
    expect(gumbel([1, 2], 3, 0, 17)).not.toBe(gumbel([1, 2], 3, 1, 17));
  });

  it("reports log-probabilities of raw logits and counts what it drew", () => {
    const x = operands({ logits, temperature: 0, logprobs: 2, bias: { 0: 5 }, history: [0, 0, 0, 0, 0, 0, 0, 0] });
    const [token, logprob, top, topLogprobs] = evaluate("sample", x, { top: 3 });
    const total = Math.log(logits.map(Math.exp).reduce((a, b) => a + b));
    expect([token, top]).toEqual([[0], [7, 0, -1]]);
    expectClose([...logprob!, ...topLogprobs!.slice(0, 2)], [2 - total, 3 - total, 2 - total]);
    expect([...x.history!.data]).toEqual([1, 0, 0, 0, 0, 0, 0, 0]);
    const forced = operands({ logits, target: 4, logprobs: 0, history: [0, 0, 0, 0, 0, 0, 0, 0] });
    const [given, givenLogprob] = evaluate("sample", forced, { top: 1 });
    expect(given).toEqual([4]);
    expectClose(givenLogprob!, [-0.5 - total]);
    expect([...forced.history!.data].every((v) => v === 0)).toBe(true);
  });

  it("a mask leaves only its tokens", () => {
    const x = {
      ...operands({ logits, temperature: 0 }),
      mask: { dims: [1, 1], data: Uint32Array.of(0b0110_0010) },
      mask_row: i32([1], [0]),
    };
    expect(evaluate("sample", x, { top: 1 })[0]).toEqual([1]);
  });

  const golden = new URL("../../../shared/golden/sampling.json", import.meta.url);
  const params: Record<string, (value: number) => Partial<Row>> = {
    temperature: (temperature) => ({ temperature }),
    top_k: (topK) => ({ topK }),
    top_p: (topP) => ({ topP }),
    min_p: (minP) => ({ minP }),
    repetition_penalty: (repetition) => ({ repetition }),
    presence_penalty: (presence) => ({ presence }),
    frequency_penalty: (frequency) => ({ frequency }),
    logit_bias: (bias) => ({ bias: bias as unknown as Record<string, number> }),
  };

  it.skipIf(!existsSync(golden))(
    "probabilities equal ../shared/golden/sampling.json (skipped when that file is absent)",
    () => {
      const { vectors, cases } = JSON.parse(readFileSync(golden, "utf8"));
      let compared = 0;
      for (const c of cases) {
        if (!c.order.every((name: string) => name in params)) continue; // filters that inferx does not offer
        const vector = vectors[c.logits];
        const history = vector.logits.map(() => 0);
        for (const token of vector.previous) history[token]++;
        const row: Row = { logits: vector.logits.map((v: number | null) => v ?? -Infinity), history };
        for (const name of c.order) Object.assign(row, params[name]!(c.params[name]));
        const processed = processRow(row.logits, 0, operands(row));
        const powers = processed.map(Math.exp);
        const total = powers.reduce((a, b) => a + b);
        const probabilities = powers.map((p) => p / total);
        const tied = c.logits !== "eight" && c.logits !== "rand64" && c.logits !== "peaked";
        const order = (values: number[]) => (tied ? values.toSorted((a, b) => a - b) : values);
        expectClose(order(probabilities), order(c.probs), 1e-6);
        compared++;
      }
      expect(compared).toBeGreaterThan(150);
    },
  );
});
