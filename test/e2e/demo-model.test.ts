// The bundled model answers its skills' questions, all at once, and its perplexity is that of the unquantized model in PyTorch.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { type GenerationResult, Model } from "../../lib/index.ts";
import { type Skill, score } from "./demo-score.ts";
import { repository, sharedPath } from "./models.ts";

const folder = join(repository, "models/demo");

test("the scoring rule refuses wrong answers", () => {
  const item = (check: Skill["check"], answer: string, content = "") =>
    ({ check, answer, messages: [{ role: "user", content }] }) as Skill;
  expect(score(item("exact", "12 + 30 = 42"), " 12 + 30 = 42\n")).toBe(true);
  expect(score(item("exact", "12 + 30 = 42"), "12 + 30 = 43")).toBe(false);
  expect(score(item("json", '{"a": 1, "b": [2]}'), '{"b":[2],"a":1}')).toBe(true);
  expect(score(item("json", '{"a": 1}'), '{"a": 1, "b": 2}')).toBe(false);
  expect(score(item("json", '{"a": 1}'), "{")).toBe(false);
  expect(score(item("tool", '<tool_call>{"name": "f"}</tool_call>'), '<tool_call>\n{"name":"f"}\n</tool_call>')).toBe(
    true,
  );
  expect(score(item("tool", '<tool_call>{"name": "f"}</tool_call>'), "f()")).toBe(false);
  const trees = item("list", "Fir, elm and cedar.", "Give me 3 trees.");
  expect(score(trees, "Oak, pine and ash.")).toBe(true);
  for (const wrong of ["Oak, pine and oak.", "Oak and pine.", "Oak, pine and copper.", '["oak", "pine", "ash"]'])
    expect(score(trees, wrong), wrong).toBe(false);
});

test("at least 246 of 262 questions are answered right (PyTorch f32: 249)", async () => {
  const items = readFileSync(join(folder, "skills.jsonl"), "utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Skill);
  expect(items.length).toBe(262);
  await using model = await Model.load();
  const answers = await Promise.all(
    items.map(
      ({ messages, tools }): PromiseLike<GenerationResult> =>
        model.chat(messages, { temperature: 0, ...(tools ? { tools } : {}) }),
    ),
  );
  const right = items.filter((item, i) => score(item, answers[i]!.text)).length;
  console.info(`${right} of ${items.length} right`);
  expect(right).toBeGreaterThanOrEqual(246);
});

/** Tokens of a window; each window is a sequence of its own, and all its tokens but the first one count. */
const windowTokens = 512;

async function perplexity(model: Model, text: string): Promise<{ perplexity: number; tokens: number }> {
  const ids = model.tokenize(text, { addSpecial: false });
  const windows = Array.from({ length: Math.ceil(ids.length / windowTokens) }, (_, i) =>
    ids.slice(i * windowTokens, (i + 1) * windowTokens),
  );
  const results = await Promise.all(
    windows.map((window) => model.generate(window, { maxTokens: 0, promptLogprobs: 0 })),
  );
  const logprobs = results.flatMap(({ promptLogprobs }) => promptLogprobs!.slice(1).map(({ logprob }) => logprob!));
  return { perplexity: Math.exp(-logprobs.reduce((a, b) => a + b, 0) / logprobs.length), tokens: logprobs.length };
}

/**
 * Of eval_text.txt over 48680 tokens: the bf16 checkpoint that the GGUF file was made from, by transformers 5.24.0 on torch 2.13.0 (CPU, float32):
 * tokenizer.json without special tokens, windows of 512 tokens, exp of the mean of -log_softmax(logits)[next token], summed in float64.
 * inferx with numerics f32 gives 3.12487 for that checkpoint and 3.12451 for the Q8_0 file.
 */
const reference = { perplexity: 3.12487, tokens: 48680 };

test("perplexity of eval_text.txt is within 0.5 % of the f32 reference", async () => {
  const text = readFileSync(join(folder, "eval_text.txt"), "utf8");
  await using model = await Model.load();
  const found = await perplexity(model, text);
  console.info(`perplexity ${found.perplexity.toFixed(5)}, reference ${reference.perplexity}`);
  expect(found.tokens).toBe(reference.tokens);
  expect(Math.abs(found.perplexity / reference.perplexity - 1)).toBeLessThan(0.005);
});

const checkpoint = sharedPath("demo-model/demo");
test.skipIf(!checkpoint)(
  `the unquantized checkpoint in f32 gives the reference${checkpoint ? "" : " SKIPPED: ../shared/demo-model is absent"}`,
  async () => {
    await using model = await Model.load(checkpoint!, { numerics: "f32" });
    const found = await perplexity(model, readFileSync(join(folder, "eval_text.txt"), "utf8"));
    expect(found.perplexity).toBeCloseTo(reference.perplexity, 4);
  },
);
