// Models of random weights: tensors as published checkpoints have them, values as the definition says, the same model as one that was
// written to a file with those values. Golden folders are used for their configurations and headers only.
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it, test } from "vitest";
import { randomCheckpoint } from "../../lib/compile/random-source.ts";
import { type Checkpoint, openCheckpoint } from "../../lib/formats/checkpoint.ts";
import { type RandomDType, randomValues } from "../../lib/formats/random-values.ts";
import { InferxError, Model } from "../../lib/index.ts";
import { architectures } from "../../lib/models/index.ts";
import { addon } from "../device.ts";
import { codeOf, goldenRoot, sharedPath } from "./models.ts";

const shapeOf = (folder: string): Record<string, unknown> =>
  JSON.parse(readFileSync(join(folder, "config.json"), "utf8"));

/** Folders of an architecture that is known here. */
function modelFolders(root: string | undefined): [name: string, path: string][] {
  if (root === undefined) return [];
  const known = new Set(architectures.flatMap(({ names }) => names));
  return readdirSync(root)
    .map((name): [string, string] => [name, join(root, name)])
    .filter(
      ([, path]) =>
        existsSync(join(path, "config.json")) &&
        known.has(String((shapeOf(path).architectures as string[] | undefined)?.[0])),
    );
}

const described = ({ tensors }: Checkpoint) =>
  [...tensors.values()].map(({ name, dtype, shape }) => `${name} ${dtype} [${shape}]`).sort();

const golden = modelFolders(goldenRoot);
const shared = modelFolders(sharedPath("golden"));

describe("tensors that follow from a configuration are those of the published class", () => {
  it.each(golden)("%s", (_, path) => {
    expect(described(randomCheckpoint({ shape: shapeOf(path) }, []))).toEqual(described(openCheckpoint(path)));
  });
  it.skipIf(shared.length === 0)(
    shared.length > 0 ? "all architectures" : "all architectures (SKIPPED: ../shared/golden is absent)",
    () => {
      for (const [name, path] of shared)
        expect(described(randomCheckpoint({ shape: shapeOf(path) }, [])), name).toEqual(
          described(openCheckpoint(path)),
        );
      const covered = new Set(shared.map(([, path]) => openCheckpoint(path).architecture));
      expect(architectures.filter(({ names }) => !names.some((name) => covered.has(name)))).toEqual([]);
    },
  );
});

test("values are those of the definition", () => {
  // Made by a Python script from the text of the definition, rounding with Fraction.
  const wanted = JSON.parse(readFileSync(join(import.meta.dirname, "../fixtures/random-values.json"), "utf8")) as {
    seed: number;
    name: string;
    shape: number[];
    dtype: RandomDType;
    values: number[];
  }[];
  expect(wanted.length).toBeGreaterThan(0);
  for (const { seed, name, shape, dtype, values } of wanted)
    expect(Array.from(randomValues(seed, name, shape, dtype)), `${name} ${dtype}`).toEqual(values);
});

/** The model of a configuration as a folder, written with the values of the definition. */
function writeFolder(folder: string, shape: Record<string, unknown>, seed: number): void {
  const write = (dtype: string, value: number, at: number, out: Buffer) => {
    if (dtype === "f32") out.writeFloatLE(value, at * 4);
    else if (dtype === "bf16") out.writeUInt16LE(new Uint32Array(Float32Array.of(value).buffer)[0]! >>> 16, at * 2);
    else out.writeUInt16LE(halfBits(value), at * 2);
  };
  const header: Record<string, unknown> = {};
  const parts: Buffer[] = [];
  let end = 0;
  for (const { name, dtype, shape: dims, byteLength } of randomCheckpoint({ shape }, []).tensors.values()) {
    const part = Buffer.alloc(byteLength);
    const values = randomValues(seed, name, dims, dtype as RandomDType);
    for (const [i, value] of values.entries()) write(dtype, value, i, part);
    header[name] = { dtype: dtype.toUpperCase(), shape: dims, data_offsets: [end, end + byteLength] };
    end += byteLength;
    parts.push(part);
  }
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  writeFileSync(join(folder, "config.json"), JSON.stringify(shape));
  writeFileSync(join(folder, "model.safetensors"), Buffer.concat([length, text, ...parts]));
}

/** Of a value that is a half. */
function halfBits(value: number): number {
  const sign = value < 0 ? 0x8000 : 0;
  const size = Math.abs(value);
  if (size < 2 ** -14) return sign | (size * 2 ** 24);
  const exponent = Math.floor(Math.log2(size));
  return sign | ((exponent + 15) << 10) | ((size / 2 ** exponent - 1) * 1024);
}

const options = { device: "cpu", threads: 2, thread: "main", numerics: "f32" } as const;
async function answer(model: string | { shape: Record<string, unknown>; seed?: number }): Promise<number[]> {
  await using loaded = await Model.load(model, options);
  const { tokens } = await loaded.generate([1, 2, 3, 4, 5], { maxTokens: 16, ignoreEos: true, logprobs: 0 });
  return tokens.flatMap(({ id, logprob }) => [id, logprob!]);
}

const hasAddon = addon() !== undefined;
const title = hasAddon ? "random models" : "random models (SKIPPED: the addon is not built)";
describe.skipIf(!hasAddon)(title, () => {
  let folder: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "inferx-random-"));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  const llama = shapeOf(join(goldenRoot, "llama"));

  it.each(golden)("%s: tokens and log-probabilities are those of the model in a file", async (_, path) => {
    const shape = shapeOf(path);
    writeFolder(folder, shape, 7);
    const made = await answer({ shape, seed: 7 });
    expect(made).toHaveLength(32);
    expect(made).toEqual(await answer(folder));
  });

  it.each(["float16", "float32", "bfloat16", undefined])("the same in dtype %s", async (dtype) => {
    const shape = { ...llama, torch_dtype: undefined, dtype };
    writeFolder(folder, shape, 2 ** 32 - 1);
    expect(await answer({ shape, seed: 2 ** 32 - 1 })).toEqual(await answer(folder));
  });

  it("the seed decides, and is 0 by default", async () => {
    const first = await answer({ shape: llama });
    expect(await answer({ shape: llama, seed: 0 })).toEqual(first);
    expect(await answer({ shape: llama, seed: 1 })).not.toEqual(first);
  });

  it("has no tokenizer, and says what it is", async () => {
    await using model = await Model.load({ shape: llama }, options);
    expect(model.info).toMatchObject({ path: "", architecture: "LlamaForCausalLM", formats: { f32: 21 } });
    expect(await codeOf(model.generate("text"))).toBe("IX_TOKENIZER");
    expect(await codeOf(model.chat("text"))).toBe("IX_TOKENIZER");
  });

  it("every step of a plan with random weights equals the reference", async () => {
    await using model = await Model.load({ shape: llama, seed: 3 }, { ...options, scheduler: false });
    let steps = 0;
    for await (const { error } of model.prepared.differences([1, 2, 3])) {
      expect(error).toBeLessThan(1e-4);
      steps++;
    }
    expect(steps).toBeGreaterThan(10);
  });

  const bad: [string, unknown, string, RegExp][] = [
    ["no shape", {}, "IX_INVALID_ARGUMENT", /shape/],
    ["null", null, "IX_INVALID_ARGUMENT", /path/],
    ["a number", 5, "IX_INVALID_ARGUMENT", /path/],
    ["another key", { shape: llama, sed: 1 }, "IX_INVALID_ARGUMENT", /sed/],
    ["a seed below 0", { shape: llama, seed: -1 }, "IX_INVALID_ARGUMENT", /seed/],
    ["a seed of 2^32", { shape: llama, seed: 2 ** 32 }, "IX_INVALID_ARGUMENT", /seed/],
    ["half a seed", { shape: llama, seed: 0.5 }, "IX_INVALID_ARGUMENT", /seed/],
    ["a shape that is a list", { shape: [llama] }, "IX_INVALID_ARGUMENT", /shape/],
    ["an empty shape", { shape: {} }, "IX_MODEL_CONFIG", /architecture/],
    ["an unknown architecture", { shape: { architectures: ["None"] } }, "IX_UNSUPPORTED_ARCHITECTURE", /None/],
    ["an unknown dtype", { shape: { ...llama, dtype: "int8" } }, "IX_MODEL_CONFIG", /dtype/],
    ["a dtype of Object's", { shape: { ...llama, dtype: "toString" } }, "IX_MODEL_CONFIG", /dtype/],
    ...["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"].map(
      (key): [string, unknown, string, RegExp] => [
        `no ${key}`,
        { shape: { ...llama, [key]: undefined } },
        "IX_MODEL_CONFIG",
        new RegExp(key),
      ],
    ),
    ["half a vocabulary", { shape: { ...llama, vocab_size: 0.5 } }, "IX_MODEL_CONFIG", /vocab_size/],
    ["a negative width", { shape: { ...llama, intermediate_size: -4 } }, "IX_MODEL_CONFIG", /intermediate_size/],
    ["absurd width", { shape: { ...llama, intermediate_size: 2 ** 31 - 1 } }, "IX_OUT_OF_MEMORY", /intermediate_size/],
    ["absurd vocabulary", { shape: { ...llama, vocab_size: 2 ** 31 - 1 } }, "IX_OUT_OF_MEMORY", /vocab_size/],
    ["more weights than memory", { shape: { ...llama, intermediate_size: 2 ** 28 } }, "IX_OUT_OF_MEMORY", /exceed/],
    ["absurd depth", { shape: { ...llama, num_hidden_layers: 2 ** 31 - 1 } }, "IX_MODEL_CONFIG", /num_hidden_layers/],
    [
      "absurd heads",
      { shape: { ...llama, num_attention_heads: 2 ** 30, head_dim: 2, num_key_value_heads: 1 } },
      "IX_MODEL_CONFIG",
      /heads/,
    ],
  ];
  it.each(bad)("refuses %s", async (_, model, code, message) => {
    const failed = await Model.load(model as never, options).then(
      () => undefined,
      (error) => error,
    );
    expect(InferxError.is(failed)).toBe(true);
    expect(failed.code).toBe(code);
    expect(failed.message).toMatch(message);
  });

  it("refuses absurd numbers of experts", async () => {
    const shape = { ...shapeOf(join(goldenRoot, "qwen3_moe")), num_experts: 2 ** 31 - 1 };
    expect(await codeOf(Model.load({ shape }, options))).toBe("IX_OUT_OF_MEMORY");
  });
});
