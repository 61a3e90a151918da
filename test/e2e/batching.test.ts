// Any mix of concurrent requests gives each the tokens that it gives alone: arrivals, aborts, forks, tiny caches, both threads.
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type GenerateOptions,
  type Generation,
  KVCache,
  Model,
  Scheduler,
  type SchedulerOptions,
} from "../../lib/index.ts";
import { demoPath, goldenRoot, randomRuns, turns } from "./models.ts";

interface Wish {
  prompt: number[];
  options: GenerateOptions;
  /** Turns of the event loop before it arrives. */
  delay: number;
  /** Tokens after which it is aborted; forked. */
  abortAfter: number | undefined;
  forkAfter: number | undefined;
  pinned: boolean;
}

const tokensOf = (tokens: readonly { id: number }[]) => tokens.map(({ id }) => id);

/** Prompts share beginnings, so that prefix cache, forks and copy-on-write have work. */
function wishes(vocabulary: number, count: { minLength: number; maxLength: number }, longest: number) {
  const token = fc.integer({ min: 0, max: vocabulary - 1 });
  const bases = fc.array(fc.array(token, { minLength: longest, maxLength: longest }), { minLength: 1, maxLength: 4 });
  const sampling = fc.option(
    fc.record({
      temperature: fc.constantFrom(0.3, 1, 2.5),
      seed: fc.maxSafeInteger(),
      topK: fc.constantFrom(0, 40),
      topP: fc.constantFrom(1, 0.9),
      minP: fc.constantFrom(0, 0.05),
      repetitionPenalty: fc.constantFrom(1, 1.3),
      frequencyPenalty: fc.constantFrom(0, 0.5),
    }),
    { freq: 2 },
  );
  const wish = fc.record({
    base: fc.nat(3),
    length: fc.integer({ min: 1, max: longest }),
    tail: fc.array(token, { maxLength: 8 }),
    maxTokens: fc.integer({ min: 0, max: 40 }),
    ignoreEos: fc.boolean(),
    sampling,
    priority: fc.integer({ min: -2, max: 2 }),
    delay: fc.nat(12),
    abortAfter: fc.option(fc.nat(10), { freq: 6, nil: undefined }),
    forkAfter: fc.option(fc.integer({ min: 1, max: 10 }), { freq: 6, nil: undefined }),
    pinned: fc.boolean(),
  });
  // One pin a mix: pins take blocks away from all others, and what no longer fits would rightly be refused.
  return fc.tuple(bases, fc.array(wish, count)).map(([shared, list]) =>
    list.map(
      ({ base, length, tail, maxTokens, ignoreEos, sampling: drawn, priority, ...rest }, i): Wish => ({
        ...rest,
        pinned: rest.pinned && i === 0,
        prompt: [...shared[base % shared.length]!.slice(0, length), ...tail].slice(0, longest),
        options: { maxTokens, ignoreEos, priority, ...drawn },
      }),
    ),
  );
}

/** Runs a request by itself on an empty engine without prefix cache; answers are kept. */
function solo(scheduler: Scheduler): (prompt: number[], options: GenerateOptions) => Promise<number[]> {
  const known = new Map<string, number[]>();
  return async (prompt, options) => {
    const key = JSON.stringify([prompt, options]);
    const tokens = known.get(key) ?? tokensOf((await scheduler.add({ prompt, ...options })).tokens);
    known.set(key, tokens);
    return tokens;
  };
}

async function runWish(scheduler: Scheduler, wish: Wish, alone: ReturnType<typeof solo>): Promise<void> {
  const { prompt, options, abortAfter, forkAfter } = wish;
  await turns(wish.delay);
  const pin = wish.pinned ? await scheduler.cache.pin(prompt).catch(expectExhausted) : undefined;
  const generation = scheduler.add({ prompt, ...options });
  const seen: number[] = [];
  let fork: { generation: Generation; prompt: number[]; options: GenerateOptions } | undefined;
  for await (const { tokens } of generation) {
    seen.push(...tokensOf(tokens));
    if (fork === undefined && forkAfter !== undefined && seen.length >= forkAfter) {
      const forked = { ...options, maxTokens: 12 };
      fork = { generation: scheduler.cache.fork(generation, forked), prompt: [...prompt, ...seen], options: forked };
    }
    if (abortAfter !== undefined && seen.length >= abortAfter) break;
  }
  const ended = abortAfter === undefined || seen.length < abortAfter;
  const wanted = await alone(prompt, options);
  expect(seen, JSON.stringify(wish)).toEqual(ended ? wanted : wanted.slice(0, seen.length));
  if (fork) {
    const { tokens } = await fork.generation;
    expect(tokensOf(tokens), "fork").toEqual(await alone(fork.prompt, fork.options));
  }
  await pin?.release();
}

function expectExhausted(error: { code?: string }): undefined {
  expect(error.code).toBe("IX_KV_EXHAUSTED");
}

async function runMix(model: Model, mix: Wish[], options: SchedulerOptions, alone: ReturnType<typeof solo>) {
  await using scheduler = new Scheduler(model, options);
  await Promise.all(mix.map((wish) => runWish(scheduler, wish, alone)));
  const stats = await scheduler.stats();
  expect([stats.running, stats.waiting, stats.cache.usedBlocks]).toEqual([0, 0, 0]);
  return stats;
}

describe.each(["demo", "llama", "qwen3_moe", "gemma3_text", "mistral"])("%s", (name) => {
  let model: Model;
  let reference: Scheduler;
  let alone: ReturnType<typeof solo>;
  let longest = 200;

  beforeAll(async () => {
    model = await Model.load(name === "demo" ? demoPath : join(goldenRoot, name), { scheduler: false });
    longest = Math.min(200, model.info.contextLength - 64);
    reference = new Scheduler(model, { thread: "main", cache: new KVCache({ prefixCache: false }) });
    alone = solo(reference);
  });
  afterAll(async () => {
    await reference?.dispose();
    await model?.dispose();
  });

  const property = (options: () => SchedulerOptions, count = { minLength: 10, maxLength: 40 }) =>
    fc.assert(
      fc.asyncProperty(wishes(model.info.vocabularySize, count, longest), async (mix) => {
        await runMix(model, mix, options(), alone);
      }),
      { numRuns: randomRuns, endOnFailure: true },
    );

  test("a random mix with room for all", () => property(() => ({ thread: "main" })));
  test("a random mix without prefix cache, small steps", () =>
    property(() => ({
      thread: "main",
      policy: "fair",
      maxStepTokens: 48,
      cache: new KVCache({ prefixCache: false }),
    })));
  test("a random mix in 16 blocks by priority", () =>
    property(() => ({ thread: "main", policy: "priority", cache: new KVCache({ blocks: 16 }) })));
  test("a random mix in 16 blocks with some on the host, freed ones poisoned", async () => {
    await using checked = await Model.load(name === "demo" ? demoPath : join(goldenRoot, name), {
      scheduler: false,
      checked: true,
    });
    await fc.assert(
      fc.asyncProperty(
        wishes(model.info.vocabularySize, { minLength: 10, maxLength: 20 }, longest),
        fc.boolean(),
        async (mix, prefixCache) => {
          const cache = new KVCache({ blocks: 16, swapBytes: 1 << 24, prefixCache });
          await runMix(checked, mix, { thread: "main", policy: "priority", cache }, alone);
        },
      ),
      { numRuns: randomRuns, endOnFailure: true },
    );
  });
  test("a random mix in the worker thread", () =>
    property(() => ({ thread: "worker", policy: "deadline", maxSequences: 7, cache: new KVCache({ blocks: 24 }) })));
});

/** Four of each of 50 prompts: what one computed the others may find in the cache. */
function crowd(): Wish[] {
  // Counts of generated tokens must survive preemption, and not reach the row's next request.
  const sampled = { temperature: 1, frequencyPenalty: 2, repetitionPenalty: 1.2 };
  return Array.from({ length: 200 }, (_, number): Wish => {
    const i = number % 50;
    const prompt = Array.from({ length: 1 + ((i * 37) % 90) }, (_, k) => (k * 131 + i * 17) % 4096);
    const options = { maxTokens: 64, ignoreEos: true, ...(i % 2 ? sampled : {}), seed: i };
    return { prompt, options, delay: 0, abortAfter: undefined, forkAfter: undefined, pinned: false };
  });
}

test.each([
  { swapBytes: 0, prefixCache: true },
  { swapBytes: 1 << 26, prefixCache: true },
  { swapBytes: 1 << 26, prefixCache: false },
])("200 requests at once on 16 blocks, sampled with seeds, are preempted and still the same: %j", async (swapping) => {
  await using model = await Model.load(demoPath, { scheduler: false });
  await using reference = new Scheduler(model, { thread: "main", cache: new KVCache({ prefixCache: false }) });
  const alone = solo(reference);
  const stats = await runMix(
    model,
    crowd(),
    { thread: "worker", cache: new KVCache({ blocks: 16, ...swapping }) },
    alone,
  );
  expect(stats.preemptions).toBeGreaterThan(0);
  if (swapping.swapBytes === 0) expect([stats.swaps, stats.swappedBytes]).toEqual([0, 0]);
  else expect(Math.min(stats.swaps, stats.swappedBytes)).toBeGreaterThan(0);
});
