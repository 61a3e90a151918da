// What the sampler of a running engine gives against logits computed step by step without engine, and its rule in TypeScript.
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type GenerateOptions, Model, type TokenLogprob } from "../../lib/index.ts";
import { sample } from "../../lib/ir/ops/sample.ts";
import { goldenPrompts, goldenRoot, logSoftmax } from "./models.ts";
import { NativeRun } from "./native-run.ts";

const folder = join(goldenRoot, "llama");
const prompts = goldenPrompts(folder).map(({ input_ids }) => input_ids);
let model: Model;
let run: NativeRun;

beforeAll(async () => {
  model = await Model.load(folder, { thread: "main" });
  run = await NativeRun.open(folder);
});
afterAll(async () => {
  run?.close();
  await model?.dispose();
});

/** [tokens, vocabulary] rows of a sequence's logits. */
function rowsOf(tokens: readonly number[]): Float32Array[] {
  run.reset();
  const logits = run.forward(tokens);
  const vocabulary = logits.length / tokens.length;
  return tokens.map((_, i) => logits.subarray(i * vocabulary, (i + 1) * vocabulary));
}

function checkTable(table: readonly TokenLogprob[], row: Float32Array, count: number) {
  expect(table.length).toBe(count);
  const wanted = logSoftmax(row);
  const best = wanted.toSorted().reverse();
  table.forEach(({ id, logprob }, i) => {
    expect(Math.abs(logprob - wanted[id]!)).toBeLessThan(1e-4);
    expect(Math.abs(logprob - best[i]!)).toBeLessThan(1e-4);
    if (i > 0) expect(logprob).toBeLessThanOrEqual(table[i - 1]!.logprob);
  });
  expect(new Set(table.map(({ id }) => id)).size).toBe(count);
  expect(table.reduce((sum, { logprob }) => sum + Math.exp(logprob), 0)).toBeLessThanOrEqual(1 + 1e-5);
}

describe("log-probabilities", () => {
  test.each([0, 1, 5, 20])("of the answer, %i alternatives", async (logprobs) => {
    for (const prompt of prompts) {
      for (const sampling of [{}, { temperature: 1.5, seed: 3 }]) {
        const { tokens } = await model.generate(prompt, { maxTokens: 12, ignoreEos: true, logprobs, ...sampling });
        const rows = rowsOf([...prompt, ...tokens.map(({ id }) => id)]).slice(prompt.length - 1);
        tokens.forEach(({ id, logprob, topLogprobs }, i) => {
          expect(Math.abs(logprob! - logSoftmax(rows[i]!)[id]!)).toBeLessThan(1e-4);
          checkTable(topLogprobs!, rows[i]!, logprobs);
          const inTable = topLogprobs!.find((entry) => entry.id === id);
          if (inTable) expect(inTable.logprob).toBe(logprob);
        });
      }
    }
  });

  test("of the prompt, in one step and in many, from concurrent requests, cached before or not", async () => {
    const check = async (chunked: Model, prompt: number[], options: GenerateOptions) => {
      const { promptLogprobs } = await chunked.generate(prompt, { promptLogprobs: 3, ...options });
      expect(promptLogprobs!.map(({ id }) => id)).toEqual(prompt);
      const rows = rowsOf(prompt);
      promptLogprobs!.forEach(({ id, logprob, topLogprobs }, i) => {
        if (i === 0) {
          expect([logprob, topLogprobs]).toEqual([null, []]);
          return;
        }
        expect(Math.abs(logprob! - logSoftmax(rows[i - 1]!)[id]!)).toBeLessThan(1e-4);
        checkTable(topLogprobs, rows[i - 1]!, 3);
      });
    };
    await using small = await Model.load(folder, { thread: "main", maxStepTokens: 7 });
    for (const each of [model, small]) {
      await Promise.all(prompts.map((prompt) => check(each, prompt, { maxTokens: 0 })));
      await Promise.all(prompts.map((prompt) => check(each, prompt, { maxTokens: 3 })));
      await check(each, prompts[0]!.slice(0, 1), { maxTokens: 1 });
      await check(each, prompts[0]!.slice(0, 1), { maxTokens: 0 });
    }
  });

  test("are absent where nobody asked, also beside a request that did", async () => {
    const [asked, plain] = await Promise.all([
      model.generate(prompts[0]!, { maxTokens: 4, logprobs: 2 }),
      model.generate(prompts[1]!, { maxTokens: 4 }),
    ]);
    expect(asked.tokens.every(({ logprob }) => logprob! <= 0)).toBe(true);
    expect(plain.tokens.some((token) => "logprob" in token || "topLogprobs" in token)).toBe(false);
    expect("promptLogprobs" in asked).toBe(false);
  });
});

/** The rule of lib/ir/ops/sample.ts, step by step over logits of the whole sequence. */
function reference(prompt: readonly number[], options: GenerateOptions, count: number): number[] {
  const vocabulary = model.info.vocabularySize;
  const history = new Uint32Array(vocabulary);
  for (const token of prompt) history[token] = 0x80000000;
  const bias = Object.entries(options.logitBias ?? {});
  const one = (value: number) => ({ dims: [1], data: Float32Array.of(value) });
  const whole = (...values: number[]) => ({ dims: [values.length], data: Int32Array.from(values) });
  const known = [...prompt];
  for (let i = 0; i < count; i++) {
    const [token] = sample.evaluate(
      {
        logits: { dims: [1, vocabulary], data: rowsOf(known).at(-1)! },
        row_state: whole(0),
        position: whole(known.length),
        seed: { dims: [1, 2], data: Uint32Array.of(Number(options.seed ?? 0), 0) },
        sample_index: whole(0),
        target: whole(-1),
        temperature: one(options.temperature ?? 0),
        top_k: whole(options.topK ?? 0),
        top_p: one(options.topP ?? 1),
        min_p: one(options.minP ?? 0),
        repetition: one(options.repetitionPenalty ?? 1),
        presence: one(options.presencePenalty ?? 0),
        frequency: one(options.frequencyPenalty ?? 0),
        num_logprobs: whole(-1),
        bias_start: whole(0, bias.length),
        bias_token: whole(...bias.map(([id]) => Number(id))),
        bias_value: { dims: [bias.length], data: Float32Array.from(bias, ([, value]) => value) },
        history: { dims: [1, vocabulary], data: history },
        mask_row: whole(-1),
      },
      { top: 20 },
    );
    known.push(token!.data[0]!);
  }
  return known.slice(prompt.length);
}

describe("sampling options follow the reference rule", () => {
  test.each<[string, GenerateOptions]>([
    ["greedy", {}],
    ["repetition penalty", { repetitionPenalty: 1.8 }],
    ["presence penalty", { presencePenalty: 1.5 }],
    ["frequency penalty", { frequencyPenalty: 0.7 }],
    ["negative penalties", { presencePenalty: -1, frequencyPenalty: -0.5, repetitionPenalty: 0.7 }],
    ["temperature", { temperature: 1, seed: 11 }],
    ["top-k", { temperature: 1.5, topK: 7, seed: 12 }],
    ["top-p", { temperature: 1.5, topP: 0.6, seed: 13 }],
    ["min-p", { temperature: 2, minP: 0.2, seed: 14 }],
    [
      "all",
      { temperature: 1.2, topK: 50, topP: 0.9, minP: 0.02, repetitionPenalty: 1.2, presencePenalty: 0.3, seed: 15 },
    ],
    ["bias", { logitBias: { 3: 2.5, 40: -1, 41: 4 }, temperature: 1, seed: 16 }],
  ])("%s", async (_, options) => {
    const answers = await Promise.all(
      prompts.map((prompt) => model.generate(prompt, { maxTokens: 10, ignoreEos: true, ...options })),
    );
    answers.forEach(({ tokens }, i) => {
      expect(
        tokens.map(({ id }) => id),
        `prompt ${i}`,
      ).toEqual(reference(prompts[i]!, options, 10));
    });
  });

  test("-Infinity forbids a token, a large bias forces one, rows do not leak into later requests", async () => {
    const prompt = prompts[0]!;
    const free = (await model.generate(prompt, { maxTokens: 8, ignoreEos: true })).tokens.map(({ id }) => id);
    const forbidden = Object.fromEntries(free.map((id) => [id, Number.NEGATIVE_INFINITY]));
    const other = await model.generate(prompt, { maxTokens: 8, ignoreEos: true, logitBias: forbidden });
    expect(other.tokens.some(({ id }) => free.includes(id))).toBe(false);
    const forced = await model.generate(prompt, { maxTokens: 8, ignoreEos: true, logitBias: { 77: 1000 } });
    expect(forced.tokens.map(({ id }) => id)).toEqual(Array(8).fill(77));
    await model.generate(prompt, { maxTokens: 8, ignoreEos: true, frequencyPenalty: 2 });
    expect((await model.generate(prompt, { maxTokens: 8, ignoreEos: true })).tokens.map(({ id }) => id)).toEqual(free);
  });
});
