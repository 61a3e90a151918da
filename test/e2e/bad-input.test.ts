// Bad input through the public API: each case a typed error or the right answer, and the process lives on.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type ChatOptions, type GenerateOptions, Model, type SchedulerRequest } from "../../lib/index.ts";
import { codeOf, demoPath } from "./models.ts";

const story = "Once upon a time";
let model: Model;
let answer: string;

beforeAll(async () => {
  model = await Model.load(demoPath, { thread: "main" });
  answer = (await model.generate(story, { maxTokens: 12 })).text;
});
afterAll(async () => {
  // Whatever was done to it: the model still answers, and holds no blocks.
  expect((await model.generate(story, { maxTokens: 12 })).text).toBe(answer);
  expect(await model.stats()).toMatchObject({ running: 0, waiting: 0, cache: { usedBlocks: 0 } });
  await model.dispose();
});

describe("prompts", () => {
  test.each<[string, unknown, string]>([
    ["empty text", "", "IX_INVALID_ARGUMENT"],
    ["no tokens", [], "IX_INVALID_ARGUMENT"],
    ["longer than the context", "word ".repeat(4000), "IX_CONTEXT_OVERFLOW"],
    ["as long as the context", Array(2048).fill(5), "IX_CONTEXT_OVERFLOW"],
    ["token beyond the vocabulary", [1, 4096], "IX_INVALID_ARGUMENT"],
    ["negative token", [-1], "IX_INVALID_ARGUMENT"],
    ["fraction", [1.5], "IX_INVALID_ARGUMENT"],
    ["NaN", [Number.NaN], "IX_INVALID_ARGUMENT"],
    ["huge token", [2 ** 40], "IX_INVALID_ARGUMENT"],
    ["text in an array", ["a"], "IX_INVALID_ARGUMENT"],
    ["hole", new Array(3), "IX_INVALID_ARGUMENT"],
    ["nothing", undefined, "IX_INVALID_ARGUMENT"],
    ["null", null, "IX_INVALID_ARGUMENT"],
    ["object", {}, "IX_INVALID_ARGUMENT"],
    ["a float array", Float32Array.of(0.5), "IX_INVALID_ARGUMENT"],
  ])("%s", async (_, prompt, code) => {
    expect(await codeOf(model.generate(prompt as string))).toBe(code);
  });

  test("the whole context can be used, no token more", async () => {
    expect((await model.generate(Array(2047).fill(5), { ignoreEos: true })).tokens.length).toBe(1);
    expect((await model.generate(Array(2040).fill(5), { ignoreEos: true })).tokens.length).toBe(8);
    expect(await codeOf(model.generate(Array(2040).fill(5), { maxTokens: 9 }))).toBe("IX_CONTEXT_OVERFLOW");
    expect((await model.generate(Array(2048).fill(5), { maxTokens: 0 })).tokens.length).toBe(0);
  });

  test("lone surrogates, NUL and other odd text are U+FFFD or themselves, never special tokens", async () => {
    const wellFormed = (text: string) => Buffer.from(text).toString();
    for (const text of ["\ud800", "a\udfffb", "\0", "\uffff", "\u{10ffff}", "\ud83d\ude00"]) {
      expect(model.detokenize(model.tokenize(text))).toBe(wellFormed(text));
      expect((await model.generate(text, { maxTokens: 2 })).usage.promptTokens).toBeGreaterThan(0);
    }
    const special = model.tokenize("<|im_end|>", { parseSpecial: true });
    expect(special.length).toBe(1);
    expect(model.tokenize("<|im_end|>")).not.toContain(special[0]);
    expect(model.detokenize(model.tokenize("<|im_end|>"))).toBe("<|im_end|>");
  });

  test("invalid UTF-8 among the tokens becomes U+FFFD in streams and wholes alike", async () => {
    const bytes = model.tokenize("é🎈", { addSpecial: false });
    const logitBias = Object.fromEntries([[bytes[0]!, 1000]]);
    const generation = model.generate(story, { maxTokens: 3, logitBias });
    let streamed = "";
    for await (const { text } of generation) streamed += text;
    const { text, tokens } = await generation;
    expect(streamed).toBe(text);
    expect(text).toBe(model.detokenize(tokens.map(({ id }) => id)));
  });
});

describe("options of requests", () => {
  const bad: [string, unknown][] = [
    ...[
      "temperature",
      "topP",
      "minP",
      "repetitionPenalty",
      "presencePenalty",
      "frequencyPenalty",
      "priority",
      "topK",
      "maxTokens",
      "logprobs",
      "promptLogprobs",
      "deadlineMs",
      "seed",
    ].flatMap((name) =>
      [Number.NaN, Number.POSITIVE_INFINITY, "1", {}].map((value): [string, unknown] => [name, value]),
    ),
    ...[
      "temperature",
      "topK",
      "topP",
      "minP",
      "repetitionPenalty",
      "maxTokens",
      "logprobs",
      "promptLogprobs",
      "deadlineMs",
    ].map((name): [string, unknown] => [name, -1]),
    ["topP", 1.1],
    ["minP", 2],
    ["repetitionPenalty", 0],
    ["maxTokens", 1.5],
    ["logprobs", 21],
    ["promptLogprobs", 21],
    ["seed", 0.5],
    ["temperature", 1e300],
    ["logitBias", { 4096: 1 }],
    ["logitBias", { "-1": 1 }],
    ["logitBias", { x: 1 }],
    ["logitBias", { 5: Number.NaN }],
    ["logitBias", { 5: Number.POSITIVE_INFINITY }],
    ["logitBias", { 5: 1e300 }],
    ["logitBias", "12"],
    ["logitBias", 12],
    ["logitBias", Object.fromEntries(Array.from({ length: 1025 }, (_, i) => [i, 1]))],
    ["stop", ""],
    ["stop", ["a", ""]],
    ["stop", 5],
    ["stop", [5]],
    ["stop", "x".repeat(1 << 17)],
    ["stopTokens", [4096]],
    ["stopTokens", [-1]],
    ["stopTokens", 5],
    ["stopTokens", ["a"]],
    ["tenant", 5],
    ["ignoreEos", 1],
    ["keepSpecial", "yes"],
    ["addSpecial", 0],
    ["parseSpecial", null],
    ["signal", {}],
    ["maxToken", 5],
    ["max_tokens", 5],
  ];
  test.each(bad)("%s: %o", async (name, value) => {
    const options = { maxTokens: 2, [name]: value } as GenerateOptions;
    expect(await codeOf(model.generate(story, options))).toBe("IX_INVALID_ARGUMENT");
    expect(await codeOf(model.chat(story, options))).toBe("IX_INVALID_ARGUMENT");
  });

  test.each<[string, unknown]>([
    ["tools", 5],
    ["addGenerationPrompt", "yes"],
    ["continueFinalMessage", 1],
    ["templateVariables", []],
  ])("of chat, %s: %o", async (name, value) => {
    expect(await codeOf(model.chat(story, { [name]: value } as ChatOptions))).toBe("IX_INVALID_ARGUMENT");
  });

  test("options that are no object", async () => {
    for (const request of [null, undefined, 5, {}] as unknown as SchedulerRequest[])
      expect(await codeOf(model.scheduler.add(request)), `add ${String(request)}`).toBe("IX_INVALID_ARGUMENT");
    expect(await codeOf(model.cache.pin(story, { maxTokens: 5 } as object))).toBe("IX_INVALID_ARGUMENT");
    for (const options of [null, 5, "x", []] as unknown as GenerateOptions[]) {
      expect(await codeOf(model.chat(story, options)), `chat ${String(options)}`).toBe("IX_INVALID_ARGUMENT");
      expect(await codeOf(model.generate(story, options)), `generate ${String(options)}`).toBe("IX_INVALID_ARGUMENT");
    }
  });

  test("extreme values that make sense are obeyed", async () => {
    const text = async (options: GenerateOptions) => (await model.generate(story, { maxTokens: 12, ...options })).text;
    expect(await text({ maxTokens: 12, topK: Number.MAX_SAFE_INTEGER })).toBe(answer);
    expect(await text({ temperature: 1e-30, seed: 1 })).toBe(answer);
    expect(await text({ temperature: 1e-45, seed: 1 })).toBe(answer);
    expect(await text({ temperature: 1, topP: 0, seed: 1 })).toBe(answer);
    expect(await text({ temperature: 1, topP: 1e-30, seed: 1 })).toBe(answer);
    expect(await text({ temperature: 1, minP: 1, seed: 1 })).toBe(answer);
    expect(await text({ temperature: 1, topK: 1, seed: 1 })).toBe(answer);
    const sampled = await text({ temperature: 1, topK: 4096, seed: 1 });
    for (const topK of [0, 4097, 2 ** 31, 2 ** 32 + 1, Number.MAX_SAFE_INTEGER])
      expect(await text({ temperature: 1, topK, seed: 1 }), `topK ${topK}`).toBe(sampled);
    expect(await text({ temperature: 1, seed: -1n })).toBe(await text({ temperature: 1, seed: (1n << 64n) - 1n }));
    for (const extreme of [
      { temperature: 1e6 },
      { repetitionPenalty: 1e-6 },
      { repetitionPenalty: 1e6 },
      { presencePenalty: 1e6 },
      { frequencyPenalty: -1e6 },
    ])
      expect(
        (await model.generate(story, { maxTokens: 5, ignoreEos: true, seed: 1, ...extreme, logprobs: 3 })).tokens.every(
          ({ logprob }) => logprob! <= 0,
        ),
      ).toBe(true);
  });
});

describe("messages", () => {
  test.each<[string, unknown, string]>([
    ["no messages", [], "IX_INVALID_ARGUMENT"],
    ["no role", [{ content: "x" }], "IX_INVALID_ARGUMENT"],
    ["null among them", [null], "IX_INVALID_ARGUMENT"],
    ["a number", 5, "IX_INVALID_ARGUMENT"],
    ["nothing", undefined, "IX_INVALID_ARGUMENT"],
    [
      "a longer conversation than the context",
      [{ role: "user", content: "word ".repeat(4000) }],
      "IX_CONTEXT_OVERFLOW",
    ],
  ])("%s", async (_, messages, code) => {
    expect(await codeOf(model.chat(messages as string))).toBe(code);
  });

  test("templates that are broken, endless or refuse", async () => {
    for (const chatTemplate of [
      "{% if %}",
      "{{ raise_exception('no') }}",
      "{% for i in range(1000000000) %}x{% endfor %}",
    ]) {
      const code = await codeOf(async () => {
        await using other = await Model.load(demoPath, { thread: "main", chatTemplate });
        await other.chat("hello", { maxTokens: 1 });
      });
      expect(code, chatTemplate).toBe("IX_TEMPLATE");
    }
  });

  test("special tokens of a template that the tokenizer lacks are plain text", async () => {
    await using other = await Model.load(demoPath, {
      thread: "main",
      chatTemplate: "<|nobody|>{{ messages[0].content }}<|im_end|>",
    });
    const { usage } = await other.chat("hi", { maxTokens: 1 });
    const wanted = [...other.tokenize("<|nobody|>hi"), ...other.tokenize("<|im_end|>", { parseSpecial: true })];
    expect(usage.promptTokens).toBe(wanted.length);
  });
});
