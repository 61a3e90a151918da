// Random steps of the real engine in checked mode: arrivals, aborts, forks, pins, priorities, shared prefixes, stop conditions, penalties and
// log-probabilities in a cache that is too small. After each step the cache's books are checked; at the end every answer is the one
// that its request gets alone. INFERX_RANDOM_STEPS says how many steps, INFERX_RANDOM_SEED which.
import { describe, expect, test } from "vitest";
import { type EngineOptions, type PreparedModel, prepareModel } from "../../lib/engine/prepare.ts";
import { policyNames } from "../../lib/engine/protocol.ts";
import type { GenerateOptions } from "../../lib/index.ts";
import { addon, deviceKind } from "../device.ts";
import { type Answer, EngineRun } from "./engine-run.ts";
import { Random, type Wish, wishes } from "./random-wishes.ts";
import { variants } from "./step-variants.ts";

const numSteps = Number(process.env.INFERX_RANDOM_STEPS ?? 10_000);
const turnsPerRound = 120;
const contextLength = 256;
const firstSeed = Number(process.env.INFERX_RANDOM_SEED ?? Math.floor(Math.random() * 2 ** 32));

const seen = {
  steps: 0,
  finished: 0,
  aborted: 0,
  forks: 0,
  stops: 0,
  stopStrings: 0,
  preemptions: 0,
  swaps: 0,
  cached: 0,
  refused: 0,
  pins: 0,
  ties: 0,
};

function engineOptions(random: Random, blockTokens: number): EngineOptions {
  return {
    cache: {
      blocks: Math.ceil((contextLength * random.pick([1.05, 1.3, 2])) / blockTokens),
      swapBytes: random.pick([0, 1 << 20, 1 << 24]),
      prefixCache: random.chance(0.75),
    },
    policy: random.pick(policyNames),
    maxStepTokens: random.pick([24, 64, 200]),
    maxSequences: random.pick([6, 10, 20]),
    targetStepMs: random.pick([8, 50]),
  };
}

/** Arrivals and all the rest for some turns of the loop, then the end of everything that is open. */
function live(run: EngineRun, random: Random, pool: readonly Wish[]): void {
  const pins: number[] = [];
  const busy = random.int(6, 24);
  for (let turn = 0; turn < turnsPerRound; ) {
    const { running } = run;
    if (running.length < busy && random.chance(0.4)) {
      for (let i = random.int(1, 4); i > 0; i--) {
        const { prompt, options } = random.pick(pool);
        run.add(prompt, { ...options, ...(random.chance(0.2) ? { deadlineMs: random.int(0, 1000) } : {}) });
      }
    }
    const source = running.length > 0 ? random.pick(running) : undefined;
    if (source && random.chance(0.02)) run.abort(source.spec.id);
    else if (source && source.tokens.length > 0 && random.chance(0.1)) fork(run, random, source, pool);
    if (random.chance(0.02)) {
      const pin = run.call("pin", { tokens: Int32Array.from(random.pick(pool).prompt), salt: "" });
      if (typeof pin === "number") pins.push(pin);
      else expect(pin).toBe("IX_KV_EXHAUSTED");
    }
    if (pins.length > 0 && random.chance(0.03)) run.call("unpin", { pin: pins.pop()! });
    if (random.chance(0.004)) {
      run.call("clear");
      pins.length = 0;
    }
    if (run.turn()) turn++;
  }
  run.runToEnd();
  seen.pins += pins.length;
  for (const pin of pins) run.call("unpin", { pin });
}

function fork(run: EngineRun, random: Random, { spec, tokens, options }: Answer, pool: readonly Wish[]): void {
  const more = random.chance(0.3) ? random.pick(pool).prompt.slice(-3) : [];
  const prompt = [...spec.prompt, ...tokens, ...more];
  const maxTokens = random.int(1, 12);
  if (prompt.length + maxTokens > contextLength) return;
  const other = random.chance(0.5) ? options : random.pick(pool).options;
  run.add(prompt, { ...other, maxTokens, tenant: options.tenant ?? "" }, spec.id);
  seen.forks++;
}

/** What the cache owes when all requests have ended. */
function checkEmpty(run: EngineRun): void {
  const { numRunning, numWaiting, cache } = run.stats;
  expect([numRunning, numWaiting]).toEqual([0, 0]);
  run.call("clear");
  for (const group of run.cache.usage()) {
    expect(
      [group.usedBlocks, group.cachedBlocks, group.pinnedBlocks, group.usedHostSlots],
      `${cache.length} groups`,
    ).toEqual([0, 0, 0, 0]);
  }
}

/** Answers of requests that run alone, in an empty cache. */
class Alone {
  readonly #run: EngineRun;
  readonly #known = new Map<string, Answer>();
  constructor(run: EngineRun) {
    this.#run = run;
  }
  close(): void {
    this.#run.close();
  }
  answer(prompt: ArrayLike<number>, options: GenerateOptions): Answer {
    const { deadlineMs: _, ...rest } = options;
    const key = JSON.stringify([Array.from(prompt), rest, rest.logitBias && Object.values(rest.logitBias).map(String)]);
    let answer = this.#known.get(key);
    if (!answer) {
      const id = this.#run.add(Array.from(prompt), rest);
      this.#run.runToEnd();
      answer = this.#run.answers.get(id)!;
      this.#run.answers.clear();
      this.#known.set(key, answer);
    }
    return answer;
  }
}

const close = (actual: readonly number[], wanted: readonly number[], within: number, what: string) => {
  expect(actual.length, what).toBe(wanted.length);
  const worst = actual.reduce((most, value, i) => Math.max(most, Math.abs(value - wanted[i]!)), 0);
  expect(worst, what).toBeLessThanOrEqual(within);
};

/** `tolerance`: how far the logits of a sequence may be from those that it gets alone; 0 where batches change nothing. */
function checkAnswer(answer: Answer, alone: Alone, tolerance: number): void {
  const { spec, options, end, tokens, text, logprobs, promptLogprobs } = answer;
  if (end?.startsWith("failed")) {
    // A pin took the blocks that it would need.
    expect(end).toMatch(/IX_KV_EXHAUSTED/);
    seen.refused++;
    return;
  }
  const stop = tokens.findIndex((token) => spec.stopTokens.includes(token));
  expect(stop < 0 || stop === tokens.length - 1, "nothing follows a stop token").toBe(true);
  if (end?.startsWith("length")) expect(tokens.length).toBe(spec.maxTokens);
  const wanted = alone.answer(spec.prompt, options);
  const ended = end !== "abort";
  const count = ended ? wanted.tokens.length : tokens.length;
  const parts = tokens.findIndex((token, i) => token !== wanted.tokens[i]);
  if (parts >= 0 && tolerance > 0) {
    // A near tie: alone it would choose the same, were that token's logit a little higher.
    const bias = { ...options.logitBias, [tokens[parts]!]: (options.logitBias?.[tokens[parts]!] ?? 0) + tolerance };
    expect(alone.answer(spec.prompt, { ...options, logitBias: bias }).tokens.slice(0, parts + 1)).toEqual(
      tokens.slice(0, parts + 1),
    );
    seen.ties++;
    return;
  }
  expect(tokens).toEqual(wanted.tokens.slice(0, count));
  expect(ended ? text : wanted.text.startsWith(text)).toEqual(ended ? wanted.text : true);
  if (!ended) {
    seen.aborted++;
    return;
  }
  expect(end).toBe(wanted.end);
  close(logprobs, wanted.logprobs, 2 * tolerance, "log-probabilities");
  close(promptLogprobs, wanted.promptLogprobs, 2 * tolerance, "log-probabilities of the prompt");
  seen.finished++;
  if (end!.startsWith("stop")) seen.stops++;
  if (options.stop && end !== "stop null" && !Number.isInteger(Number(end!.slice(5)))) seen.stopStrings++;
}

const hasAddon = addon() !== undefined;
describe.skipIf(!hasAddon)(hasAddon ? "random steps" : "random steps (SKIPPED: the addon is not built)", () => {
  test.each(variants)(
    "$name",
    async ({ model, numerics, deterministic, tolerance, share }) => {
      const prepare = (checked: boolean): PreparedModel =>
        prepareModel(model, {
          device: deviceKind,
          numerics,
          deterministic,
          threads: 1, // the products are small, and none waits for a thread that has lost its turn
          contextLength,
          maxSequences: 20,
          maxStepTokens: 200,
          checked,
        });
      const prepared = prepare(true);
      const alone = new Alone(await EngineRun.open(prepare(false), { cache: { prefixCache: false } }));
      const { vocabularySize, hasTokenizer } = prepared.requestDefaults;
      const blockTokens = deviceKind === "cuda" ? 64 : 32;
      const pool = wishes(new Random(firstSeed), vocabularySize, hasTokenizer);
      for (let done = 0, seed = firstSeed; done < numSteps * share; seed++) {
        const random = new Random(seed);
        const options = engineOptions(random, blockTokens);
        const run = await EngineRun.open(prepared, options);
        try {
          live(run, random, pool);
          for (const answer of run.answers.values()) checkAnswer(answer, alone, tolerance);
          const { numSteps: steps, numPreemptions, numSwaps, cachedTokens } = run.stats;
          done += steps;
          seen.steps += steps;
          seen.preemptions += numPreemptions;
          seen.swaps += numSwaps;
          seen.cached += cachedTokens;
          checkEmpty(run);
        } catch (error) {
          const what = `INFERX_RANDOM_SEED=${firstSeed}, round ${seed - firstSeed} with ${JSON.stringify(options)}`;
          throw new Error(`${what}: ${(error as Error).message}`, { cause: error });
        } finally {
          run.close();
        }
      }
      alone.close();
    },
    600_000,
  );
  test.skipIf(numSteps < 4000)("the generator reaches what this is about", () => {
    console.info(`seed ${firstSeed}: ${JSON.stringify(seen)}`);
    const { ties, refused, stopStrings, ...always } = seen;
    const expected = deviceKind === "cpu" ? { ...always, stopStrings } : always;
    expect(Object.entries(expected).filter(([, count]) => count === 0)).toEqual([]);
    expect(ties + refused).toBeLessThan(0.3 * seen.finished);
  });
});
