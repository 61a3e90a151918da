// `deterministic: true`: a request's tokens and log-probabilities are the same to the bit alone, in a crowd, cut into small steps, and after
// a preemption. On the device that INFERX_TEST_DEVICE names.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { type GeneratedToken, KVCache, Model, Scheduler, type SchedulerOptions } from "../../lib/index.ts";
import { deviceKind } from "../device.ts";
import { castToBf16 } from "./bf16-cast.ts";
import { codeOf, demoPath, goldenRoot } from "./models.ts";

const scratch = mkdtempSync(join(tmpdir(), "inferx-deterministic-"));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

const count = 41;
const bits = (tokens: readonly GeneratedToken[]) =>
  tokens.map(({ id, logprob, topLogprobs }) => [id, logprob, topLogprobs?.map((top) => [top.id, top.logprob])]);

/** Requests with prompts of different lengths, half of them sampled. */
function requests({ vocabularySize, contextLength }: { vocabularySize: number; contextLength: number }) {
  const longest = Math.min(200, contextLength - 32);
  return Array.from({ length: count }, (_, i) => ({
    prompt: Array.from({ length: 1 + ((i * 37 + 150) % longest) }, (_, k) => (k * 131 + i * 17 + 3) % vocabularySize),
    maxTokens: 24,
    ignoreEos: true,
    logprobs: 3,
    ...(i % 2 ? { temperature: 0.8, topP: 0.95, seed: i } : { temperature: 0 }),
  }));
}

/** What each of the requests gets when all run at once, and how often one was preempted. */
async function together(model: Model, chosen: ReturnType<typeof requests>, options: SchedulerOptions) {
  await using scheduler = new Scheduler(model, { thread: "main", ...options });
  const answers = await Promise.all(chosen.map((request) => scheduler.add(request)));
  return { answers: answers.map(({ tokens }) => bits(tokens)), preemptions: (await scheduler.stats()).preemptions };
}

const models: Record<string, () => string> = {
  // the bundled model's format has no kernels on a GPU yet
  ...(deviceKind === "cpu" ? { bundled: () => demoPath } : {}),
  "llama in f32": () => join(goldenRoot, "llama"),
  "llama in bf16": () => castToBf16(join(goldenRoot, "llama"), join(scratch, "llama")),
  "qwen3_moe in bf16": () => castToBf16(join(goldenRoot, "qwen3_moe"), join(scratch, "qwen3_moe")),
};

describe.each(Object.keys(models))("%s", (name) => {
  test("alone, in a crowd, in small steps and after preemptions each request gets the same bits", async () => {
    await using model = await Model.load(models[name]!(), {
      device: deviceKind,
      deterministic: true,
      scheduler: false,
    });
    const all = requests(model.info);
    const noPrefixes = () => new KVCache({ prefixCache: false });
    const alone: unknown[] = [];
    {
      await using scheduler = new Scheduler(model, { thread: "main", maxStepTokens: 2048, cache: noPrefixes() });
      for (const request of all) alone.push(bits((await scheduler.add(request)).tokens));
    }
    const runs = {
      "in a crowd": { maxStepTokens: 2048, cache: noPrefixes() },
      "in a crowd and small steps": { maxStepTokens: 64, cache: noPrefixes() },
      "on few blocks": { maxStepTokens: 2048, cache: new KVCache({ prefixCache: false, blocks: 12 }) },
      "on few blocks with prefixes": { maxStepTokens: 64, cache: new KVCache({ blocks: 12 }) },
    };
    for (const [how, options] of Object.entries(runs)) {
      const { answers, preemptions } = await together(model, all, options);
      expect(answers, how).toEqual(alone);
      if (how.startsWith("on few blocks")) expect(preemptions, how).toBeGreaterThan(0);
    }
    for (const request of [all[0]!, all[1]!]) {
      const cut = await together(model, [request], { maxStepTokens: 64, cache: noPrefixes() });
      expect(cut.answers[0], "alone in small steps").toEqual(alone[all.indexOf(request)]);
    }
  });
});

test("the option must be true or false", async () => {
  expect(await codeOf(Model.load(demoPath, { deterministic: 1 as unknown as boolean }))).toBe("IX_INVALID_ARGUMENT");
});
