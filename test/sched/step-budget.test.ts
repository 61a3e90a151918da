// The estimate of a step's time finds the coefficients of a simulated machine and keeps steps within their limit.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { StepBudget } from "../../lib/sched/step-budget.ts";

const machine = fc.record({
  fixedMs: fc.double({ min: 0.1, max: 40, noNaN: true }),
  tokenMs: fc.double({ min: 0.01, max: 20, noNaN: true }),
  contextMs: fc.double({ min: 0, max: 0.001, noNaN: true }),
});

describe("step budget", () => {
  test("learns a machine: predictions within 15 % after 40 steps of a growing prompt", () => {
    fc.assert(
      fc.property(machine, ({ fixedMs, tokenMs, contextMs }) => {
        const budget = new StepBudget(50);
        const time = (tokens: number, context: number) => fixedMs + tokenMs * tokens + contextMs * context;
        let position = 0;
        for (let step = 0; step < 40; step++) {
          const chunk = Math.max(1, budget.tokensUntil(budget.limitMs, 0, 0, position));
          const context = chunk * (position + (chunk + 1) / 2);
          if (step > 30) {
            expect(budget.predictMs(chunk, context) / time(chunk, context)).toBeGreaterThan(0.85);
            expect(budget.predictMs(chunk, context) / time(chunk, context)).toBeLessThan(1.15);
          }
          budget.observe(chunk, context, time(chunk, context));
          position += chunk;
        }
      }),
    );
  });

  test("chunks grow at most fourfold from step to step, and shrink as the context grows", () => {
    const budget = new StepBudget(50);
    const sizes: number[] = [];
    let position = 0;
    for (let step = 0; step < 200; step++) {
      const chunk = Math.max(1, budget.tokensUntil(budget.limitMs, 0, 0, position));
      const context = chunk * (position + (chunk + 1) / 2);
      budget.observe(chunk, context, 5 + 0.02 * chunk + 0.00001 * context);
      position += chunk;
      sizes.push(chunk);
    }
    sizes.forEach((size, i) => {
      if (i > 0) expect(size).toBeLessThanOrEqual(4 * Math.max(...sizes.slice(0, i)));
    });
    expect(Math.max(...sizes)).toBeGreaterThan(1000);
    expect(sizes.at(-1)).toBeLessThan(Math.max(...sizes) / 2);
  });

  test("one hiccup changes little", () => {
    const budget = new StepBudget(50);
    for (let step = 0; step < 60; step++) budget.observe(1 + (step % 20), 1000, 10 + (step % 20));
    const before = budget.predictMs(10, 1000);
    budget.observe(10, 1000, 60_000);
    for (let step = 0; step < 10; step++) budget.observe(1 + (step % 20), 1000, 10 + (step % 20));
    expect(budget.predictMs(10, 1000)).toBeLessThan(2 * before);
  });

  test("learns what moving blocks costs, and doubts it when that is long ago", () => {
    const budget = new StepBudget(50);
    const bytes = 2 ** 27;
    const assumed = budget.swapMs(bytes);
    const observe = (numTokens: number, swapBytes: number) =>
      budget.observe(numTokens, 0, 5 + 0.05 * numTokens + (40 * swapBytes) / bytes, swapBytes);
    for (let step = 0; step < 100; step++) observe(1 + (step % 200), 0);
    for (let step = 0; step < 20; step++) observe(1 + 10 * step, (step % 3) * bytes);
    expect(budget.swapMs(bytes) / 40).toBeGreaterThan(0.9);
    expect(budget.swapMs(bytes) / 40).toBeLessThan(1.1);
    expect(budget.predictMs(100, 0) / 10).toBeGreaterThan(0.9);
    // A thousand tokens are computed in 50 ms; there and back they move in 2 * 40.
    expect([budget.swapPays(bytes, 1000), budget.swapPays(bytes, 2000)]).toEqual([false, true]);
    for (let step = 0; step < 2000; step++) observe(1 + (step % 200), 0);
    expect(budget.swapMs(bytes) / assumed).toBeLessThan(1.5);
  });
});
