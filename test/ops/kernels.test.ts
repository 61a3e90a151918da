// Every kernel of a device against the reference evaluation, over the table of cases: through passes, plan, packing and executor.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type DType, dtypeBytes, dtypes } from "../../lib/formats/dtypes.ts";
import { type InputValue, type Value, type WeightValue, weightColumns } from "../../lib/ir/graph.ts";
import { interpret } from "../../lib/ir/interpret.ts";
import type { Tensor } from "../../lib/ir/ops/op.ts";
import { withSampleProgram } from "../../lib/ir/sample-program.ts";
import { decodePlan } from "../../lib/passes/decode.ts";
import { type LowerOptions, lower } from "../../lib/passes/index.ts";
import { detectFormat, quantFormats } from "../../lib/quant/index.ts";
import { addon, deviceKind, openTestDevice } from "../device.ts";
import {
  blocks,
  blockTokens,
  type CaseBuilder,
  type OpCase,
  opCase,
  opCases,
  referenceOutputs,
  sizes,
} from "./cases.ts";

const binding = addon();
const layouts = new Set(
  binding
    ? openTestDevice(binding)
        .layouts()
        .map(({ name }) => name)
    : [],
);
const formats = quantFormats.filter((format) => format.layouts.some((layout) => layouts.has(layout)));
const title = binding ? "kernels equal the reference" : "kernels equal the reference (SKIPPED: the addon is not built)";

const limits = {
  maxTokens: sizes.T,
  maxSequences: sizes.R,
  maxLogitRows: sizes.S,
  maxRunning: 3,
  contextTokens: 64,
  blockTokens,
  maxBias: 1,
};

/** Raw checkpoint bytes by tensor; f32 tensors need none. */
type Stored = ReadonlyMap<string, { dtype: string; bytes: Uint8Array }>;

let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "inferx-ops-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

let runs = 0;

/** A case loaded on the device; `step` runs it with its inputs as they are and gives the outputs by name. */
async function openSession(c: OpCase, stored: Stored, options: Partial<LowerOptions>) {
  const device = openTestDevice(binding!);
  const { plan: bytes } = lower(c.graph, { kernels: device.kernels(), limits, ...options });
  const plan = decodePlan(bytes);
  const file = join(folder, `weights-${runs++}`);
  const parts: Uint8Array[] = [];
  let offset = 0;
  const tensors = [...c.tensors].map(([name, { dims, data }]) => {
    const f32 = { dtype: "f32", bytes: new Uint8Array(data.buffer, data.byteOffset, data.byteLength) };
    const { dtype, bytes: raw } = stored.get(name) ?? f32;
    parts.push(raw);
    offset += raw.length;
    return { name, dtype, file: 0, offset: offset - raw.length, bytes: raw.length, dims: [...dims] };
  });
  writeFileSync(file, Buffer.concat(parts));
  const weights = new binding!.Weights(device, bytes, tensors, [file], `test/ops ${file}`);
  await weights.ready();
  const executor = new binding!.Executor(device, bytes, weights, {
    blocks: plan.groups.map(() => blocks),
    checked: true,
  });

  const step = (commands: readonly number[]): Map<string, Int32Array | Float32Array> => {
    const inputs = new ArrayBuffer(plan.inputBytes);
    for (const { name, offset: at } of plan.inputs) {
      const data = c.inputs.get(name)?.data;
      if (data) new Uint8Array(inputs).set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), at);
    }
    const tables = plan.groups.flatMap((_, group) => {
      const { dims, data } = c.inputs.get(`block_table.${group}`)!;
      return [...data].flatMap((block, i) => [1, group, Math.floor(i / dims[1]!), i % dims[1]!, block]);
    });
    const wanted = plan.outputs.map(({ operand }) => {
      const count = (operand.dims[0] === "S" ? sizes.S : sizes.T) * (operand.dims[1] as number);
      return operand.type === "f32" ? new Float32Array(count) : new Int32Array(count);
    });
    const { T, R, S } = sizes;
    const list = Int32Array.from([...tables, ...commands]);
    const step = {
      dims: [T, R, S] as [number, number, number],
      inputs,
      commands: list,
      numCommands: list.length,
      wanted: 2 ** wanted.length - 1,
    };
    executor.wait(executor.submit(step), wanted);
    return new Map(plan.outputs.map(({ name }, i) => [name, wanted[i]!]));
  };
  return { step, close: () => executor.close() };
}

/** Largest error, relative to the largest value of the output. */
function worstError(actual: ArrayLike<number>, expected: ArrayLike<number>): number {
  let [error, largest] = [0, 1e-30];
  for (let i = 0; i < expected.length; i++) {
    error = Math.max(
      error,
      Number.isFinite(actual[i]) ? Math.abs(actual[i]! - expected[i]!) : Number.POSITIVE_INFINITY,
    );
    largest = Math.max(largest, Math.abs(expected[i]!));
  }
  return error / largest;
}

async function compare(c: OpCase, stored: Stored, options: Partial<LowerOptions>, tolerance: number): Promise<void> {
  const session = await openSession(c, stored, options);
  const actual = session.step([]);
  session.close();
  for (const [name, { data }] of referenceOutputs(c)) {
    expect(actual.get(name)!.length).toBe(data.length);
    expect(worstError(actual.get(name)!, data), name).toBeLessThanOrEqual(tolerance);
  }
}

describe.skipIf(!binding)(title, () => {
  it.each(opCases().map((c) => [c.name, c] as const))("%s", async (_, c) => {
    await compare(c, new Map(), {}, 2e-5);
  });

  const cached = opCases().filter(({ graph }) => graph.groups.length > 0);
  it.each(cached.map((c) => [c.name, c] as const))("%s, cache in bf16", async (_, c) => {
    await compare(c, new Map(), { cacheType: "kv_bf16" }, 1e-2);
  });

  // where there are kernels of their own for it
  const ordered = deviceKind === "cuda" ? cached : [];
  it.each(ordered.map((c) => [c.name, c] as const))("%s, deterministic", async (_, c) => {
    await compare(c, new Map(), { deterministic: true }, 2e-5);
    await compare(c, new Map(), { deterministic: true, cacheType: "kv_bf16" }, 1e-2);
  });
});

/** Where blocks of a format have half-precision scales. */
const scales: Record<string, readonly number[]> = {
  q8_0: [0],
  q4_0: [0],
  q4_1: [0, 2],
  q5_0: [0],
  q5_1: [0, 2],
  q4_k: [0, 2],
  q5_k: [0, 2],
  q6_k: [208],
};

/** A weight of random blocks, its bytes added to `stored`. */
function randomWeight(
  c: CaseBuilder,
  stored: Map<string, { dtype: string; bytes: Uint8Array }>,
  dtype: DType,
  shape: number[],
) {
  const bytes = c.bytes(
    dtypeBytes(
      dtype,
      shape.reduce((a, b) => a * b),
    ),
  );
  const { blockBytes } = dtypes[dtype];
  const view = new DataView(bytes.buffer);
  for (let at = 0; at < bytes.length; at += blockBytes) {
    for (const scale of scales[dtype] ?? []) view.setUint16(at + scale, 0x1800 + (bytes[at + scale]! << 2), true); // 0.002 … 0.004
    if (dtype === "bf16" || dtype === "f16")
      view.setUint16(at, (dtype === "bf16" ? 0x3f00 : 0x3400) + bytes[at]! + ((bytes[at + 1]! & 1) << 15), true);
    if (dtype === "f32") view.setFloat32(at, bytes[at]! / 128 - 1, true);
  }
  const weight = c.stored(dtype, shape, detectFormat(dtype)!.dequantize(bytes));
  stored.set(weight.name, { dtype, bytes });
  return weight;
}

const matrixOps: Record<
  string,
  (c: CaseBuilder, weight: (...shape: number[]) => ReturnType<CaseBuilder["weight"]>) => ReturnType<CaseBuilder["rows"]>
> = {
  embed: (c, weight) => c.g.embed(c.g.tokens, weight(45, 512)),
  linear: (c, weight) => c.g.linear(c.rows(768), weight(101, 768), c.weight(101)),
  moe_linear: (c, weight) => c.g.moeLinear(c.rows(256), c.ints(3, -1, 4), weight(5, 37, 256)),
};

describe.skipIf(!binding)(`${title}: formats`, () => {
  const combinations = formats.flatMap(({ dtype, fastNumerics }) =>
    Object.keys(matrixOps).flatMap((op) => {
      const exact = [dtype, op, "f32", 2e-5] as const;
      // int8 activations have 7 bits, bf16 ones 8
      return fastNumerics === "f32" || op === "embed" ? [exact] : [exact, [dtype, op, "fast", 2e-2] as const];
    }),
  );
  it.each(combinations)("%s %s, numerics %s", async (dtype, op, numerics, tolerance) => {
    const stored = new Map<string, { dtype: string; bytes: Uint8Array }>();
    const c = opCase(op, dtype, (builder) =>
      matrixOps[op]!(builder, (...shape) => randomWeight(builder, stored, dtype, shape)),
    );
    const [weight] = c.graph.nodes.flatMap(({ operands }) =>
      operands.filter((v) => v?.kind === "weight" && stored.has(v.name)),
    );
    expect(weightColumns(weight!.shape as number[]) % detectFormat(dtype)!.blockColumns).toBe(0);
    for (const deterministic of [false, true]) await compare(c, stored, { numerics, deterministic }, tolerance);
  });
});

type WeightMaker = (...shape: number[]) => WeightValue;

/** A layer and the logits, with widths that four divides or not. */
function decoderCase(hidden: number, heads: number, kvHeads: number, width: number, ffn: number, norms: boolean) {
  return (b: CaseBuilder, weight: WeightMaker) => {
    const { g } = b;
    const cache = b.cache(kvHeads, width);
    const table = g.ropeTable([Array.from({ length: width / 2 }, (_, i) => 0.7 ** i)]);
    const norm = (x: Value) => g.rmsNorm(x, b.weight(hidden), 1e-5);
    const x = b.rows(hidden);
    const y = norm(x);
    const [q, k, v] = [heads, kvHeads, kvHeads].map((n) => g.linear(y, weight(n * width, hidden), b.weight(n * width)));
    const [normedQ, normedK] = norms
      ? [g.rmsNorm(q!, b.weight(width), 1e-5, heads), g.rmsNorm(k!, b.weight(width), 1e-5, kvHeads)]
      : [q!, k!];
    const written = g.kvWrite(cache, g.rope(normedK, table, kvHeads), v!);
    const attended = g.attention(g.rope(normedQ, table, heads), written, { heads, scale: norms ? 0.2 : 1 / hidden });
    const sum = g.add(x, g.linear(attended, weight(hidden, heads * width)));
    const z = norm(sum);
    const mlp = g.actMul(g.linear(z, weight(ffn, hidden)), g.linear(z, weight(ffn, hidden)), "silu");
    const last = norm(g.gather(g.add(sum, g.linear(mlp, weight(hidden, ffn))), g.rowIndex));
    return g.linear(last, weight(50, hidden));
  };
}

describe.skipIf(!binding)(`${title}: bf16 between nodes`, () => {
  const cases: [string, (c: CaseBuilder, weight: WeightMaker) => Value, ops: readonly string[]][] = [
    [
      "decoder, even widths",
      decoderCase(128, 4, 2, 32, 256, false),
      ["linear", "rms_norm", "add_rms_norm", "gated_act"],
    ],
    [
      "decoder, odd widths, norms of heads",
      decoderCase(90, 3, 1, 22, 70, true),
      ["linear", "rms_norm", "add_rms_norm", "gated_act"],
    ],
    [
      "norms behind products",
      (c, weight) => {
        const y = c.g.rmsNorm(c.rows(96), c.weight(96), 1e-5);
        return c.g.add(c.rows(64), c.g.rmsNorm(c.g.linear(y, weight(64, 96)), c.weight(64), 1e-5));
      },
      ["rms_norm", "linear"],
    ],
    [
      "layer norm, activation alone",
      (c, weight) => {
        const y = c.g.layerNorm(c.rows(60), c.weight(60), c.weight(60), 1e-5);
        const h = c.g.act(c.g.linear(y, weight(100, 60), c.weight(100)), "gelu");
        return c.g.add(c.rows(60), c.g.linear(h, weight(60, 100), c.weight(60)));
      },
      ["layer_norm", "linear", "act"],
    ],
    [
      "gate and up of two formats, chosen rows",
      (c, weight) => {
        const y = c.g.gather(c.g.rmsNorm(c.rows(64), undefined, 1e-5, 2), c.g.rowIndex);
        return c.g.linear(
          c.g.actMul(c.g.linear(y, weight(72, 64)), c.g.linear(y, c.weight(72, 64)), "silu"),
          weight(9, 72),
        );
      },
      ["act_mul"],
    ],
    [
      "cache without rotation",
      (c, weight) => {
        const cache = c.cache(2, 24);
        const y = c.g.rmsNorm(c.rows(96), c.weight(96), 1e-5);
        const [k, v] = [0, 1].map(() => c.g.linear(y, weight(48, 96)));
        return c.g.attention(c.rows(96), c.g.kvWrite(cache, k!, v!), { heads: 4, scale: 0.01 });
      },
      ["linear"],
    ],
  ];
  it.each(cases)("%s", async (name, make, ops) => {
    const stored = new Map<string, { dtype: string; bytes: Uint8Array }>();
    const c = opCase("chain", name, (builder) =>
      make(builder, (...shape) => randomWeight(builder, stored, "bf16", shape)),
    );
    const options = { numerics: "fast", cacheType: "kv_bf16" } as const;
    const device = openTestDevice(binding!);
    const { graph } = lower(c.graph, { kernels: device.kernels(), limits, ...options });
    const narrow = graph.nodes
      .filter(({ outputs }) => outputs.some(({ dtype }) => dtype === "bf16"))
      .map(({ op }) => op);
    const takesBf16 = device.kernels().some(({ signature }) => signature.startsWith("linear(x: bf16"));
    expect(ops.filter((op) => !narrow.includes(op))).toEqual(takesBf16 ? [] : ops);
    await compare(c, stored, options, 3e-2);
  });
});

describe.skipIf(!binding)(`${title}: sample`, () => {
  const vocabulary = 509;
  // greedy with penalties · filters · plain · a given token
  const rows = {
    sample_row: Int32Array.of(2, 0, 1, -1),
    row_state: Int32Array.of(2, 0, -1, -1),
    sample_index: Int32Array.of(0, 3, 0, 0),
    target: Int32Array.of(-1, -1, -1, 17),
    temperature: Float32Array.of(0, 0.8, 1.3, 1),
    top_k: Int32Array.of(0, 40, 0, 0),
    top_p: Float32Array.of(1, 0.9, 0.95, 1),
    min_p: Float32Array.of(0, 0, 0.01, 0),
    repetition: Float32Array.of(1.3, 1.1, 1, 1),
    presence: Float32Array.of(0.5, 0, 0, 0),
    frequency: Float32Array.of(0.25, 0.1, 0, 0),
    num_logprobs: Int32Array.of(3, 5, -1, 0),
    mask_row: Int32Array.of(-1, -1, -1, -1),
    seed: Uint32Array.of(1, 2, 0xffffffff, 7, 5, 0, 9, 9),
  };
  const bias: readonly (readonly [token: number, value: number])[] = [
    [3, 2.5],
    [500, -1],
    [3, 0.5],
  ];

  it("draws the reference's tokens with its log-probabilities, over ten steps", async () => {
    const c = opCase("sample", "rows", (b) =>
      b.g.scale(b.g.gather(b.g.embed(b.g.tokens, b.weight(11, vocabulary)), b.g.rowIndex), 4),
    );
    const outputs = new Map([["logits", c.graph.outputs.get("out.0")!]]);
    const forward = { ...c.graph, outputs };
    const graph = withSampleProgram(forward, 5);
    const history = { dims: [3, vocabulary], data: new Uint32Array(3 * vocabulary) };
    const prompt = Array.from({ length: 250 }, (_, i) => 2 * i);
    const answer = [7, 8, 7];
    for (const row of [2, 0]) for (const token of prompt) history.data[row * vocabulary + token]! |= 2 ** 31;
    for (const token of answer) history.data[2 * vocabulary + token]! += 1;
    const one = (data: Int32Array | Float32Array | Uint32Array, dims = [data.length]) => ({ dims, data });
    const inputs = new Map<string, Tensor>([...c.inputs, ["history", history]]);
    for (const [name, data] of Object.entries(rows)) inputs.set(name, one(data, name === "seed" ? [4, 2] : [4]));
    inputs.set("bias_start", one(Int32Array.of(0, 0, bias.length, bias.length, bias.length)));
    inputs.set("bias_token", one(Int32Array.from(bias, ([token]) => token)));
    inputs.set("bias_value", one(Float32Array.from(bias, ([, value]) => value)));

    const bits = new Int32Array(Float32Array.from(bias, ([, value]) => value).buffer);
    const biases = bias.flatMap(([token], i) => [token, bits[i]!]);
    const marks = [2, 0].flatMap((row) => [4, row, prompt.length, ...prompt]);
    const setup = [...marks, 5, 2, answer.length, ...answer, 6, 0, bias.length, ...biases];
    const session = await openSession({ ...c, graph: forward, inputs }, new Map(), {
      limits: { ...limits, maxBias: 8 },
      topLogprobs: 5,
    });
    const given: InputValue = {
      kind: "input",
      name: "logits",
      dtype: "f32",
      shape: ["S", vocabulary],
      persistent: false,
    };
    const drawn: number[][] = [];
    try {
      for (let step = 0; step < 10; step++) {
        inputs.set("position", one(Int32Array.of(40, 3, 9, 9).map((p) => p + step)));
        const actual = session.step(step === 0 ? setup : []);
        const options = { tensor: (name: string) => c.tensors.get(name)!.data as Float32Array, inputs, caches: [] };
        const logits = interpret(graph, options).get("logits")!;
        const sampled = {
          ...graph,
          nodes: graph.nodes
            .filter(({ program }) => program === "sample")
            .map((n) => ({ ...n, operands: n.operands.with(0, given) })),
        };
        const expected = interpret(sampled, {
          ...options,
          inputs: new Map([...inputs, ["logits", logits]]),
          program: "sample",
        });
        for (const name of ["token", "top_tokens"])
          expect([...(actual.get(name) as Int32Array)], name).toEqual([...expected.get(name)!.data]);
        for (const name of ["token_logprob", "top_logprobs"]) {
          expect(worstError(actual.get(name)!, expected.get(name)!.data), name).toBeLessThan(1e-5);
        }
        drawn.push([...(actual.get("token") as Int32Array)]);
      }
    } finally {
      session.close();
    }
    expect(drawn.every(([, , , given]) => given === 17)).toBe(true);
    expect(new Set(drawn.map(([, second]) => second)).size).toBeGreaterThan(2);
  });
});

describe.skipIf(!binding)(`${title}: load programs`, () => {
  const floats = (c: CaseBuilder, shape: number[], more = {}) =>
    c.stored("f32", shape, c.floats(shape.reduce((a, b) => a * b)), more);
  const derived: [string, (c: CaseBuilder) => WeightValue][] = [
    ["transposed", (c) => c.g.transposed(floats(c, [96, 70]).name)],
    ["permuted rows", (c) => floats(c, [64, 96], { source: { ropeHeads: 4 } })],
    ["part of permuted rows", (c) => c.g.sliceRows(floats(c, [64, 96], { source: { ropeHeads: 2 } }), 5, 40)],
    [
      "joined, sliced, scaled, one added",
      (c) => {
        const joined = c.g.concatRows([
          floats(c, [33, 96]),
          c.g.scaleWeight(floats(c, [50, 96]), 0.5),
          c.g.addOne(floats(c, [2, 96])),
        ]);
        return c.g.sliceRows(joined, 30, 55);
      },
    ],
  ];
  it.each(derived)("%s", async (name, make) => {
    const c = opCase("linear", name, (builder) => builder.g.linear(builder.rows(96), make(builder)));
    await compare(c, new Map(), {}, 2e-5);
  });

  it.each(quantFormats.map(({ dtype }) => dtype))("%s joined with f32, as f32", async (dtype) => {
    const stored = new Map<string, { dtype: string; bytes: Uint8Array }>();
    const c = opCase("linear", dtype, (b) => {
      return b.g.linear(b.rows(256), b.g.concatRows([randomWeight(b, stored, dtype, [5, 256]), floats(b, [3, 256])]));
    });
    await compare(c, stored, {}, 2e-5);
  });

  it("bf16, transposed without leaving its format", async () => {
    const stored = new Map<string, { dtype: string; bytes: Uint8Array }>();
    const c = opCase("linear", "bf16", (b) =>
      b.g.linear(b.rows(64), b.g.transposed(randomWeight(b, stored, "bf16", [64, 48]).name)),
    );
    await compare(c, stored, {}, 2e-5);
  });

  it.skipIf(!layouts.has("p32_q4_k"))(
    "linears of one input merge in their format, missing biases are zeros",
    async () => {
      const stored = new Map<string, { dtype: string; bytes: Uint8Array }>();
      const c = opCase("linear", "merged", (b) => {
        const x = b.g.scale(b.rows(256), 2);
        const [q, k] = [randomWeight(b, stored, "q4_k", [40, 256]), randomWeight(b, stored, "q4_k", [24, 256])];
        return [b.g.scale(b.g.linear(x, q), 3), b.g.scale(b.g.linear(x, k, b.weight(24)), 3)];
      });
      const { dumps } = lower(c.graph, { kernels: openTestDevice(binding!).kernels(), limits });
      expect(dumps.get("fuse")!().match(/= linear\(/g)).toHaveLength(1);
      await compare(c, stored, {}, 2e-5);
    },
  );
});
