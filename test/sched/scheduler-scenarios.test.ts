// One promise of the scheduler per test: order, fairness, bounds on a step, refusals, sharing.
import { describe, expect, test } from "vitest";
import { type Policy, policies } from "../../lib/sched/policies/index.ts";
import { textAlone } from "./fake-executor.ts";
import { type RequestOptions, Simulation } from "./simulation.ts";

const spec = { layers: [0], kind: "full", tokensPerBlock: 32, bytesPerBlock: 64, dtype: "f32" } as const;
const cacheOf = (numBlocks: number, more: { maxRows?: number; prefixCaching?: boolean; maxTokens?: number } = {}) => ({
  groups: [{ spec, numBlocks }],
  maxRows: 64,
  maxTokens: 4096,
  prefixCaching: true,
  ...more,
});
const prompt = (length: number, seed = 0) => Int32Array.from({ length }, (_, i) => 10 + ((i * 31 + seed * 17) % 80));
const request = (length: number, maxNewTokens: number, more: Partial<RequestOptions> = {}): RequestOptions => ({
  prompt: prompt(length, more.seed),
  maxNewTokens,
  salt: "",
  seed: 0,
  ...more,
});

/** `count` requests with different prompts whose texts do not end with the stop token. */
function lasting(count: number, length: number, maxNewTokens: number): RequestOptions[] {
  const found: RequestOptions[] = [];
  for (let seed = 0; found.length < count; seed++) {
    const asked = request(length, maxNewTokens, { seed });
    if (textAlone(asked).length === maxNewTokens) found.push(asked);
  }
  return found;
}

function expectTextsAlone(simulation: Simulation): void {
  for (const { request: asked, text } of simulation.outcomes.values()) expect(text).toEqual(textAlone(asked));
}

describe("memory", () => {
  test("200 requests at once with 16 blocks: each gets the text that it gets alone", () => {
    const simulation = new Simulation(cacheOf(16), { maxStepTokens: 128 });
    for (let i = 0; i < 200; i++) simulation.add(request(1 + ((i * 37) % 300), 1 + ((i * 13) % 90), { seed: i }));
    simulation.runToEnd();
    expectTextsAlone(simulation);
    expect(simulation.scheduler.stats()).toMatchObject({ numRunning: 0, numWaiting: 0, numFinished: 200 });
    expect(simulation.cache.usage()[0]!.usedBlocks).toBe(0);
  });

  test("cache on equals cache off, for fewer computed tokens", () => {
    const [on, off] = [true, false].map((prefixCaching) => {
      const simulation = new Simulation(cacheOf(64, { prefixCaching }));
      for (let i = 0; i < 30; i++) {
        const shared = Int32Array.from([...prompt(100, i % 2), ...prompt(1 + (i % 40), i)]);
        simulation.add(request(1, 20, { prompt: shared, seed: i }));
        for (let k = 0; k < 3; k++) simulation.turn();
      }
      simulation.runToEnd();
      expectTextsAlone(simulation);
      return simulation;
    });
    expect([...on!.outcomes.values()].map(({ text }) => text)).toEqual(
      [...off!.outcomes.values()].map(({ text }) => text),
    );
    expect(off!.scheduler.stats().cachedTokens).toBe(0);
    expect(on!.scheduler.stats().scheduledTokens).toBeLessThan(off!.scheduler.stats().scheduledTokens / 1.5);
  });

  test("a prompt that is cached to its end still computes one token, and reports the rest as cached", () => {
    const simulation = new Simulation(cacheOf(16));
    simulation.add(request(96, 4));
    simulation.runToEnd();
    const second = simulation.scheduler.get(simulation.add(request(96, 4)))!;
    simulation.runToEnd();
    expect(second.numCached).toBe(64);
    expectTextsAlone(simulation);
  });

  test("n samples compute the prompt once", () => {
    const simulation = new Simulation(cacheOf(64, { prefixCaching: false }), { maxStepTokens: 40 });
    const first = simulation.add(request(100, 8, { seed: 1 }));
    for (let seed = 2; seed <= 4; seed++) {
      simulation.add(request(100, 8, { prompt: prompt(100, 1), seed, forkOf: first }));
    }
    simulation.runToEnd();
    expectTextsAlone(simulation);
    const generated = [...simulation.outcomes.values()].reduce((sum, { text }) => sum + text.length, 0);
    // 100 for the prompt, one more per fork, and the generated ones (with at most two surplus tokens each after a stop).
    expect(simulation.scheduler.stats().scheduledTokens).toBeLessThanOrEqual(100 + 3 + generated + 4);
    expect(simulation.scheduler.stats().cachedTokens).toBe(3 * 99);
  });

  test("equal prompts that arrive together are computed once", () => {
    const simulation = new Simulation(cacheOf(64), { maxStepTokens: 40 });
    for (let seed = 0; seed < 4; seed++) simulation.add(request(1, 8, { prompt: prompt(100, 1), seed }));
    const longer = Int32Array.from([...prompt(100, 1), ...prompt(30, 2)]);
    simulation.add(request(1, 8, { prompt: longer, seed: 4 }));
    simulation.add(request(1, 8, { prompt: prompt(100, 1), seed: 5, salt: "apart" }));
    simulation.runToEnd();
    expectTextsAlone(simulation);
    expect(simulation.scheduler.stats().cachedTokens).toBe(3 * 99 + 100);
  });

  test("a prefix in the cache is not given up for less of a request that runs", () => {
    const simulation = new Simulation(cacheOf(64));
    simulation.add(request(1, 1, { prompt: prompt(200, 1) }));
    simulation.runToEnd();
    const short = Int32Array.from([...prompt(40, 1), 60, 61]);
    simulation.add(request(1, 50, { prompt: short, seed: 3 }));
    simulation.turn();
    const long = simulation.scheduler.get(simulation.add(request(1, 1, { prompt: prompt(200, 1) })))!;
    simulation.runToEnd();
    expect(long.numCached).toBe(192);
    expectTextsAlone(simulation);
  });

  test("preempted sequences go on from the host where moving is cheaper than computing, and only there", () => {
    const bytesPerBlock = 2 ** 23;
    const run = (msPerToken: number, msPerSwap: number, numHostSlots = 100) => {
      const groups = [{ spec: { ...spec, bytesPerBlock }, numBlocks: 6, numHostSlots }];
      const simulation = new Simulation({ ...cacheOf(0, { prefixCaching: false }), groups });
      simulation.elapsedMs = ({ tokens, swapBytes }) =>
        1 + msPerToken * tokens.length + (msPerSwap * swapBytes) / bytesPerBlock;
      for (const asked of lasting(9, 30, 90)) simulation.add(asked);
      simulation.runToEnd();
      expectTextsAlone(simulation);
      expect(simulation.cache.usage()[0]).toMatchObject({ usedBlocks: 0, usedHostSlots: 0 });
      const stats = simulation.scheduler.stats();
      expect(stats.swappedBytes).toBe(bytesPerBlock * (simulation.numBlocks.swapOut + simulation.numBlocks.swapIn));
      return stats;
    };
    const cheap = run(0.5, 0.3);
    expect(cheap.numSwaps).toBe(cheap.numPreemptions);
    expect(cheap.numSwaps).toBeGreaterThan(0);
    // Nothing is computed twice: each prompt and all but the last new token.
    expect(cheap.scheduledTokens).toBe(9 * (30 + 89));
    const without = run(0.5, 0.3, 0);
    expect([without.numSwaps, without.swappedBytes]).toEqual([0, 0]);
    expect(without.scheduledTokens).toBeGreaterThan(cheap.scheduledTokens);
    // What it costs shows when it is tried.
    const dear = run(0.05, 8);
    expect(dear.numSwaps).toBeGreaterThan(0);
    expect(dear.numSwaps).toBeLessThan(dear.numPreemptions / 2);
  });

  test("an abort gives a preempted sequence's host slots back", () => {
    const groups = [{ spec, numBlocks: 6, numHostSlots: 100 }];
    const simulation = new Simulation({ ...cacheOf(0), groups });
    const ids = lasting(3, 30, 90).map((asked) => simulation.add(asked));
    simulation.elapsedMs = ({ tokens }) => 1 + tokens.length;
    const used = () => simulation.cache.usage()[0]!.usedHostSlots;
    while (used() === 0) simulation.turn();
    simulation.abort(ids.find((id) => simulation.scheduler.get(id)!.held !== undefined)!);
    expect(used()).toBe(0);
    simulation.cache.checkIntegrity();
    simulation.runToEnd();
    expect(used()).toBe(0);
  });

  test("windows free early: a prompt many times the size of the window's pool", () => {
    const window = { ...spec, kind: "window", window: 64 } as const;
    const simulation = new Simulation(
      { ...cacheOf(0), groups: [{ spec: window, numBlocks: 6 }] },
      { maxStepTokens: 64 },
    );
    simulation.add(request(1500, 200, { seed: 3 }));
    simulation.runToEnd();
    expectTextsAlone(simulation);
  });

  test("pins survive pressure until they are taken off", () => {
    const simulation = new Simulation(cacheOf(16));
    simulation.add(request(64 + 1, 1));
    simulation.runToEnd();
    const pin = simulation.scheduler.pin(prompt(65));
    for (let i = 1; i < 30; i++) simulation.add(request(200, 30, { seed: i }));
    simulation.runToEnd();
    expect(simulation.cache.match(prompt(65), "")).toBe(64);
    expect(simulation.cache.unpin(pin)).toBe(true);
    expect(simulation.cache.unpin(pin)).toBe(false);
    for (let i = 1; i < 30; i++) simulation.add(request(200, 30, { seed: i + 50 }));
    simulation.runToEnd();
    expect(simulation.cache.match(prompt(65), "")).toBe(0);
    expectTextsAlone(simulation);
  });

  test("a pin may not take what an accepted request needs", () => {
    const simulation = new Simulation(cacheOf(6));
    simulation.add(request(100, 1));
    simulation.runToEnd();
    simulation.add(request(32 * 4, 1, { seed: 1 }));
    expect(() => simulation.scheduler.pin(prompt(100))).toThrow(expect.objectContaining({ code: "IX_KV_EXHAUSTED" }));
    simulation.runToEnd();
    expectTextsAlone(simulation);
  });
});

describe("order", () => {
  const finishOrder = (simulation: Simulation) =>
    simulation.events.filter(({ event }) => event === "finished").map(({ id }) => id);

  test("priority: higher first, older among equals; a running one makes room for those above it", () => {
    const simulation = new Simulation(cacheOf(64, { maxRows: 1 }), { policy: policies.priority });
    const running = simulation.add(request(40, 10, { priority: 0 }));
    simulation.turn();
    const ids = [1, 0, 2, 1, 2].map((priority) => simulation.add(request(40, 3, { priority })));
    simulation.runToEnd();
    expect(finishOrder(simulation)).toEqual([ids[2], ids[4], ids[0], ids[3], running, ids[1]]);
    expectTextsAlone(simulation);
  });

  test("priority: no more are interrupted than need be, and none of the same priority", () => {
    const simulation = new Simulation(cacheOf(16, { prefixCaching: false }), { policy: policies.priority });
    const low = lasting(5, 60, 36).map((asked) => simulation.add({ ...asked, priority: 0 })); // three blocks each
    while (low.some((id) => simulation.outcomes.get(id)!.text.length < 8)) simulation.turn();
    simulation.add(request(120, 2, { priority: 0, seed: 7 }));
    for (let i = 0; i < 6; i++) simulation.turn();
    expect(simulation.scheduler.stats().numPreemptions).toBe(0);
    const high = simulation.add(request(120, 2, { priority: 1, seed: 8 })); // four blocks, one is free
    while (simulation.outcomes.get(high)!.text.length === 0) simulation.turn();
    expect(simulation.events.filter(({ event }) => event === "preempted").map(({ id }) => id)).toEqual([low.at(-1)]);
    simulation.runToEnd();
    expect(finishOrder(simulation)[0]).toBe(high);
    expectTextsAlone(simulation);
  });

  test("priority: when blocks run out, the lowest priority gives its own back", () => {
    const simulation = new Simulation(cacheOf(8), { policy: policies.priority });
    const low = simulation.add(request(60, 100, { priority: 0, seed: 1 }));
    const high = simulation.add(request(60, 100, { priority: 1, seed: 2 }));
    simulation.runToEnd();
    const preempted = simulation.events.filter(({ event }) => event === "preempted").map(({ id }) => id);
    expect(new Set(preempted)).not.toContain(high);
    expect(simulation.outcomes.get(high)!.text.length + simulation.outcomes.get(low)!.text.length).toBeGreaterThan(0);
    expectTextsAlone(simulation);
  });

  test("priority: decoding rows do not keep blocks from a better sequence in its prompt", () => {
    const simulation = new Simulation(cacheOf(10, { prefixCaching: false }), {
      policy: policies.priority,
      maxStepTokens: 8,
    });
    for (const asked of lasting(3, 10, 150)) simulation.add(asked);
    while ([1, 2, 3].some((id) => simulation.outcomes.get(id)!.text.length === 0)) simulation.turn();
    const high = simulation.add(request(192, 5, { priority: 1 }));
    const before = simulation.numSteps;
    while (simulation.outcomes.get(high)!.text.length === 0) simulation.turn();
    // 192 tokens beside three decoding rows in steps of 8 take 39 steps; the others need over 120 to end by themselves.
    expect(simulation.numSteps - before).toBeLessThan(45);
    expect(simulation.events.filter(({ event }) => event === "preempted").map(({ id }) => id)).not.toContain(high);
    simulation.runToEnd();
    expectTextsAlone(simulation);
  });

  test("deadline: earliest first, those without one last", () => {
    const simulation = new Simulation(cacheOf(64, { maxRows: 1 }), { policy: policies.deadline });
    const deadlines = [undefined, 300, 100, undefined, 200];
    const ids = deadlines.map((d) => simulation.add(request(20, 2, d === undefined ? {} : { deadlineMs: d })));
    simulation.runToEnd();
    expect(finishOrder(simulation)).toEqual([ids[2], ids[4], ids[1], ids[0], ids[3]]);
  });

  test("fair: one request of a quiet tenant overtakes the queue of a busy one", () => {
    const place = (policy: Policy) => {
      const simulation = new Simulation(cacheOf(64, { maxRows: 2 }), { policy });
      for (let i = 0; i < 40; i++) simulation.add(request(40, 10, { tenant: "busy", seed: i }));
      for (let i = 0; i < 10; i++) simulation.turn();
      const quiet = simulation.add(request(40, 10, { tenant: "quiet" }));
      simulation.runToEnd();
      expectTextsAlone(simulation);
      return finishOrder(simulation).indexOf(quiet);
    };
    expect(place(policies.fair)).toBeLessThan(10);
    expect(place(policies.fcfs)).toBeGreaterThanOrEqual(39);
  });

  test("nobody starves: a request for the whole cache amid an endless stream of small ones", () => {
    for (const policy of [policies.fcfs, policies.fair, policies.deadline]) {
      const simulation = new Simulation(cacheOf(16), { policy });
      for (let i = 0; i < 20; i++) simulation.add(request(30, 20, { seed: i }));
      const large = simulation.add(request(32 * 14, 64, { seed: 7 }));
      for (let i = 0; i < 3000 && simulation.scheduler.get(large) !== undefined; i++) {
        if (i % 4 === 0) simulation.add(request(30, 20, { seed: i }));
        simulation.turn();
      }
      expect(simulation.scheduler.get(large)).toBeUndefined();
      simulation.runToEnd();
      expectTextsAlone(simulation);
    }
  });

  test("preemption loses nothing: tokens already given stay, the text goes on", () => {
    const simulation = new Simulation(cacheOf(6, { prefixCaching: false }));
    for (const asked of lasting(3, 30, 90)) simulation.add(asked);
    simulation.runToEnd();
    expectTextsAlone(simulation);
    expect(simulation.scheduler.stats().numPreemptions).toBeGreaterThan(0);
  });
});

describe("bounds on a step", () => {
  test("a long prompt on a slow machine: steps stay near the target beside decoding sequences, and an abort ends it", () => {
    const simulation = new Simulation(cacheOf(256), { targetStepMs: 50, maxStepTokens: 512 });
    const times: number[] = [];
    simulation.elapsedMs = (step) => {
      const ms = 12 + 3 * step.tokens.length + 0.0002 * step.contextTokens;
      times.push(ms);
      return ms;
    };
    for (const asked of lasting(4, 10, 200)) simulation.add(asked);
    const long = simulation.add(request(3000, 10, { seed: 99 }));
    for (let i = 0; i < 120; i++) simulation.turn();
    expect(simulation.scheduler.get(long)!.numComputed).toBeGreaterThan(300);
    expect(Math.max(...times)).toBeLessThan(75);
    simulation.abort(long);
    const plan = simulation.scheduler.schedule();
    expect(plan?.sequences.some(({ id }) => id === long) ?? false).toBe(false);
    if (plan !== null) simulation.executor.submit(plan);
    simulation.runToEnd();
  });

  test("more decoding rows than the time allows take turns", () => {
    const simulation = new Simulation(cacheOf(256), { targetStepMs: 20 });
    const times: number[] = [];
    simulation.elapsedMs = (step) => {
      const ms = 1 + 5 * step.tokens.length;
      times.push(ms);
      return ms;
    };
    const ids = lasting(40, 5, 200).map((asked) => simulation.add(asked));
    while (simulation.outcomes.get(ids.at(-1)!)!.text.length === 0) simulation.turn();
    const before = ids.map((id) => simulation.outcomes.get(id)!.text.length);
    for (let i = 0; i < 200; i++) simulation.turn();
    const gained = ids.map((id, i) => simulation.outcomes.get(id)!.text.length - before[i]!);
    expect(Math.max(...times.slice(20))).toBeLessThan(110);
    const unfinished = gained.filter((_, i) => simulation.scheduler.get(ids[i]!) !== undefined);
    expect(unfinished.length).toBeGreaterThan(5);
    expect(Math.max(...unfinished) - Math.min(...unfinished)).toBeLessThanOrEqual(3);
    simulation.runToEnd();
    expectTextsAlone(simulation);
  });
});

describe("refusals", () => {
  const code = (name: string) => expect.objectContaining({ code: name });

  test("what can never run is refused at once, with everything else untouched", () => {
    const simulation = new Simulation(cacheOf(8, { maxTokens: 512 }), { maxQueued: 2 });
    const { scheduler } = simulation;
    expect(() => simulation.add(request(500, 14))).toThrow(code("IX_CONTEXT_OVERFLOW"));
    expect(() => simulation.add(request(250, 8))).toThrow(code("IX_KV_EXHAUSTED"));
    expect(() => simulation.add(request(0, 8))).toThrow(code("IX_INVALID_ARGUMENT"));
    expect(() => simulation.add(request(8, Number.NaN))).toThrow(code("IX_INVALID_ARGUMENT"));
    expect(() => simulation.add(request(8, -1))).toThrow(code("IX_INVALID_ARGUMENT"));
    expect(() => simulation.add(request(8, 1, { priority: Number.NaN }))).toThrow(code("IX_INVALID_ARGUMENT"));
    expect(() => simulation.add(request(8, 1, { deadlineMs: Number.NaN }))).toThrow(code("IX_INVALID_ARGUMENT"));
    // The last token sampled needs no slot: 8 * 32 slots hold 250 tokens and 7 new ones.
    const id = simulation.add(request(250, 7));
    expect(() => scheduler.add({ id, prompt: prompt(3), maxNewTokens: 1 })).toThrow(code("IX_INVALID_ARGUMENT"));
    simulation.add(request(10, 7));
    expect(() => simulation.add(request(10, 7))).toThrow(code("IX_QUEUE_FULL"));
    expect(scheduler.stats()).toMatchObject({ numWaiting: 2, numRunning: 0 });
    simulation.runToEnd();
    expectTextsAlone(simulation);
    expect(scheduler.finish(id)).toBe(false);
  });

  test("a row that fails on the device ends its sequence and no other", () => {
    const simulation = new Simulation(cacheOf(32));
    const [bad, good] = [simulation.add(request(5, 20, { seed: 1 })), simulation.add(request(6, 20, { seed: 2 }))];
    const plan = simulation.scheduler.schedule()!;
    simulation.executor.submit(plan);
    const { step, sampled } = simulation.executor.wait();
    sampled[0] = -1;
    const heard: [number, number][] = [];
    simulation.scheduler.complete(step.stepId, sampled, 1, ({ id }, token) => heard.push([id, token]));
    expect(heard).toEqual([
      [bad, -1],
      [good, sampled[1]],
    ]);
    expect(simulation.scheduler.get(bad)).toBeUndefined();
    simulation.runToEnd();
    expect([sampled[1], ...simulation.outcomes.get(good)!.text]).toEqual(
      textAlone(simulation.outcomes.get(good)!.request),
    );
  });

  test("steps complete in order", () => {
    const simulation = new Simulation(cacheOf(32));
    simulation.add(request(10, 20));
    const first = simulation.scheduler.schedule()!;
    const second = simulation.scheduler.schedule()!;
    expect(simulation.scheduler.schedule()).toBeNull();
    expect(() => simulation.scheduler.complete(second.stepId, new Int32Array(1), 1)).toThrow(code("IX_INTERNAL"));
    expect(second.tokens.view()[0]).toBe(-1 - first.rows.view()[0]!);
  });
});
