// Random arrivals, aborts and forks on the fake executor: every request gets the text that it gets alone, whatever else runs.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { CacheOptions } from "../../lib/cache/kv-cache.ts";
import { type PolicyName, policies } from "../../lib/sched/policies/index.ts";
import { textAlone } from "./fake-executor.ts";
import { type RequestOptions, Simulation } from "./simulation.ts";

const spec = { layers: [0], tokensPerBlock: 4, bytesPerBlock: 64, dtype: "f32" } as const;
const full = { ...spec, kind: "full" } as const;
const window = (width: number) => ({ ...spec, kind: "window", window: width }) as const;
const state = { ...spec, kind: "state" } as const;
const layouts = [[full], [window(6)], [full, window(6)], [full, window(1), window(9)], [full, state]];

const cacheOptions = fc.record({
  layout: fc.constantFrom(...layouts),
  numBlocks: fc.integer({ min: 10, max: 24 }),
  maxRows: fc.integer({ min: 1, max: 7 }),
  prefixCaching: fc.boolean(),
  numHostSlots: fc.constantFrom(0, 3, 12, 60),
  poison: fc.boolean(),
});

const schedulerOptions = fc.record({
  policy: fc.constantFrom(...(Object.keys(policies) as PolicyName[])),
  maxStepTokens: fc.integer({ min: 3, max: 40 }),
  maxLogitRows: fc.constantFrom(2, 7, 100),
  maxInFlight: fc.integer({ min: 1, max: 3 }),
  targetStepMs: fc.integer({ min: 1, max: 30 }),
});

// Prompts share prefixes: a stretch of one of three texts, and a tail of their own.
const request = fc.record({
  base: fc.integer({ min: 0, max: 2 }),
  shared: fc.integer({ min: 0, max: 17 }),
  tail: fc.array(fc.integer({ min: 6, max: 9 }), { minLength: 1, maxLength: 4 }),
  maxNewTokens: fc.integer({ min: 0, max: 18 }),
  salt: fc.constantFrom("", "", "b"),
  seed: fc.integer({ min: 0, max: 3 }),
  priority: fc.integer({ min: 0, max: 2 }),
  deadlineMs: fc.integer({ min: 0, max: 50 }),
  tenant: fc.constantFrom("x", "y"),
  needsHost: fc.boolean(),
  promptLogits: fc.boolean(),
});

const action = fc.record({
  turns: fc.integer({ min: 0, max: 6 }),
  kind: fc.constantFrom("add", "add", "add", "add", "abort", "fork", "fork", "clear", "pin", "unpin"),
  request,
  pick: fc.nat(),
});

function promptOf({ base, shared, tail }: { base: number; shared: number; tail: number[] }): Int32Array {
  return Int32Array.from([...Array.from({ length: shared }, (_, i) => 10 + base + ((i * 7) % 5)), ...tail]);
}

function cacheOf({
  layout,
  numBlocks,
  numHostSlots,
  ...rest
}: Omit<CacheOptions, "groups" | "maxTokens"> & {
  layout: (typeof layouts)[number];
  numBlocks: number;
  numHostSlots: number;
}): CacheOptions {
  return { ...rest, groups: layout.map((group) => ({ spec: group, numBlocks, numHostSlots })), maxTokens: 64 };
}

describe("random arrivals", () => {
  test("texts equal those alone, all memory comes back", () => {
    const seen = { preempted: 0, cached: 0, copies: 0, stops: 0, forks: 0, swaps: 0, swappedOut: 0, swappedIn: 0 };
    fc.assert(
      fc.property(
        cacheOptions,
        schedulerOptions,
        fc.array(action, { minLength: 1, maxLength: 40, size: "max" }),
        (c, s, actions) => {
          const simulation = new Simulation(cacheOf(c), { ...s, policy: policies[s.policy] });
          simulation.elapsedMs = ({ tokens, contextTokens, swapBytes }) =>
            2 + tokens.length * 0.5 + contextTokens * 0.01 + swapBytes * 0.001;
          const { scheduler, outcomes } = simulation;
          const pins: number[] = [];
          for (const { kind, turns, request: r, pick } of actions) {
            for (let i = 0; i < turns; i++) simulation.turn();
            const alive = [...outcomes.keys()].filter((id) => scheduler.get(id) !== undefined);
            const picked = alive[pick % Math.max(1, alive.length)];
            const { base: _base, shared: _shared, tail: _tail, ...options } = r;
            const whole: RequestOptions = { ...options, prompt: promptOf(r) };
            try {
              if (kind === "add") simulation.add(whole);
              else if (kind === "clear") simulation.cache.clear();
              else if (kind === "pin") pins.push(scheduler.pin(whole.prompt, whole.salt));
              else if (kind === "unpin") simulation.cache.unpin(pins.pop() ?? -1);
              else if (picked !== undefined && kind === "abort") simulation.abort(picked);
              else if (picked !== undefined && kind === "fork") {
                const source = scheduler.get(picked)!;
                const more = pick % 3 === 0 ? r.tail : [];
                const prompt = Int32Array.from([...source.tokens.subarray(0, source.numKnown), ...more]);
                if (prompt.length + r.maxNewTokens > 40) continue;
                simulation.add({ ...whole, salt: source.salt, prompt, forkOf: picked });
                seen.forks++;
              }
            } catch (error) {
              // Pins take blocks away for good, so a request or a further pin may be refused.
              expect(error).toMatchObject({ code: "IX_KV_EXHAUSTED" });
              expect(
                simulation.cache.usage()[0]!.pinnedBlocks + simulation.cache.match(whole.prompt, whole.salt),
              ).toBeGreaterThan(0);
            }
          }
          simulation.runToEnd();
          for (const [id, { request: asked, text, ended }] of outcomes) {
            const alone = textAlone(asked);
            if (ended === "abort") expect(text).toEqual(alone.slice(0, text.length));
            else expect({ id, text }).toEqual({ id, text: alone });
            if (ended === "stop") seen.stops++;
            const history = simulation.executor.histories.get(id)!;
            const firstLogits = asked.promptLogits
              ? 0
              : asked.maxNewTokens > 0
                ? asked.prompt.length - 1
                : asked.prompt.length;
            expect(history.logits).toEqual(history.logits.map((_, i) => firstLogits + i));
            if (ended === "length")
              expect(history.logits.length).toBe(
                asked.prompt.length + Math.max(0, asked.maxNewTokens - 1) - firstLogits,
              );
          }
          seen.copies += simulation.numBlocks.copy;
          seen.swappedOut += simulation.numBlocks.swapOut;
          seen.swappedIn += simulation.numBlocks.swapIn;
          seen.swaps += scheduler.stats().numSwaps;
          expect(scheduler.stats().swappedBytes).toBe(
            64 * (simulation.numBlocks.swapOut + simulation.numBlocks.swapIn),
          );
          seen.preempted += scheduler.stats().numPreemptions;
          seen.cached += scheduler.stats().cachedTokens;
          simulation.cache.clear();
          for (const usage of simulation.cache.usage())
            expect(usage).toMatchObject({ usedBlocks: 0, cachedBlocks: 0, pinnedBlocks: 0, usedHostSlots: 0 });
          simulation.cache.checkIntegrity();
          if (c.poison) simulation.executor.checkPoison();
          expect(scheduler.stats()).toMatchObject({ numRunning: 0, numWaiting: 0, numFinished: outcomes.size });
        },
      ),
      { numRuns: Number(process.env.INFERX_RANDOM_RUNS ?? 400) },
    );
    // The generator must reach what this test is about.
    for (const [what, count] of Object.entries(seen)) expect({ what, count }).not.toEqual({ what, count: 0 });
  });
});
