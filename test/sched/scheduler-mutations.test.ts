// The checks are worth something: each deliberate fault in the cache is noticed by the integrity check or by the fake executor.
import { describe, expect, test } from "vitest";
import { blockOp } from "../../lib/cache/block-ops.ts";
import type { HeldSequence } from "../../lib/cache/held-sequences.ts";
import { type CacheOptions, CacheState } from "../../lib/cache/kv-cache.ts";
import type { StepPlan } from "../../lib/sched/step-plan.ts";
import { textAlone } from "./fake-executor.ts";
import { Simulation } from "./simulation.ts";

const spec = { layers: [0], kind: "full", tokensPerBlock: 4, bytesPerBlock: 64, dtype: "f32" } as const;
const options: CacheOptions = { groups: [{ spec, numBlocks: 14 }], maxRows: 6, maxTokens: 64, prefixCaching: true };

/** Shared prefixes, two salts, forks and preemptions, all in a small pool. */
function work(cache: CacheState, tamper: (plan: StepPlan) => void = () => {}): Simulation {
  const simulation = new Simulation(options, { maxStepTokens: 24 }, cache);
  simulation.elapsedMs = ({ tokens }) => 1 + tokens.length;
  const schedule = simulation.scheduler.schedule.bind(simulation.scheduler);
  simulation.scheduler.schedule = () => {
    const plan = schedule();
    if (plan !== null) tamper(plan);
    return plan;
  };
  for (let i = 0; i < 40; i++) {
    const prompt = Int32Array.from({ length: 6 + (i % 7) }, (_, k) => (k < 5 ? 20 + (i % 2) : 30 + i) + k);
    const id = simulation.add({ prompt, maxNewTokens: 4 + (i % 9), seed: i, salt: i % 3 === 0 ? "b" : "" });
    simulation.add({ prompt, maxNewTokens: 6, seed: i + 100, salt: i % 3 === 0 ? "b" : "", forkOf: id });
    for (let k = 0; k < i % 5; k++) simulation.turn();
  }
  simulation.runToEnd();
  return simulation;
}

class FreesTwice extends CacheState {
  override close(row: number): void {
    const shared = this.groups[0]!.table[row * this.groups[0]!.maxColumns]!;
    if (!this.groups[0]!.pool.isWritable(shared)) this.groups[0]!.pool.release(shared);
    super.close(row);
  }
}

class SharesUncomputed extends CacheState {
  override reserve(row: number, numNew: number): number {
    const granted = super.reserve(row, numNew);
    const { tokens } = this;
    if (tokens !== undefined && granted > 0) this.commit(row, Math.min(this.numTokens(row), tokens.length), tokens);
    return granted;
  }
  tokens: Int32Array | undefined;
  override open(tokens: Int32Array, limit: number, salt: string, numTokens: number): number {
    this.tokens = tokens;
    return super.open(tokens, limit, salt, numTokens);
  }
}

class ForgetsEpochs extends CacheState {
  override submitStep(): void {}
}

class KeepsNoReference extends CacheState {
  override fork(source: number, numShared: number, numTokens: number): number {
    const row = super.fork(source, numShared, numTokens);
    if (row >= 0) this.groups[0]!.pool.release(this.groups[0]!.table[row * this.groups[0]!.maxColumns]!);
    return row;
  }
}

/** The same with places on the host for what preempted sequences computed. */
const swapping = (more: Partial<CacheOptions> = {}): CacheOptions => ({
  ...options,
  groups: [{ spec, numBlocks: 14, numHostSlots: 40 }],
  poison: true,
  ...more,
});

class DropsTwice extends CacheState {
  override drop(held: HeldSequence): void {
    super.drop(held);
    super.drop(held);
  }
}

function tamperOps(tamper: (ops: number[][]) => number[][]): (plan: StepPlan) => void {
  return (plan) => {
    const ops = Array.from({ length: plan.blockOps.length / 4 }, (_, i) => [
      ...plan.blockOps.subarray(4 * i, 4 * i + 4),
    ]);
    plan.blockOps = Int32Array.from(tamper(ops).flat());
  };
}

describe("deliberate faults", () => {
  test("the untouched cache passes the same work, with forks, copies, hits and preemptions in it", () => {
    const simulation = work(new CacheState(options));
    for (const { request, text } of simulation.outcomes.values()) expect(text).toEqual(textAlone(request));
    expect(simulation.numBlocks.copy).toBeGreaterThan(0);
    expect(simulation.scheduler.stats().cachedTokens).toBeGreaterThan(0);
    expect(simulation.scheduler.stats().numPreemptions).toBeGreaterThan(0);
  });

  test("a shared block freed twice", () => {
    expect(() => work(new FreesTwice(options))).toThrow(/references|nobody holds/);
  });

  test("a fork that takes no reference", () => {
    expect(() => work(new KeepsNoReference(options))).toThrow(/references|nobody holds/);
  });

  test("blocks shared before they are computed", () => {
    expect(() => work(new SharesUncomputed(options))).toThrow(/reads|writes/);
  });

  test("blocks reused while a step in flight reads them", () => {
    expect(() => work(new ForgetsEpochs(options))).toThrow(/is allocated again while step|is reused while in flight/);
  });

  test("a write into a shared block without a copy", () => {
    const cache = new CacheState(options);
    cache.groups[0]!.pool.isWritable = () => true;
    expect(() => work(cache)).toThrow(/reads a foreign KV|which sequence .* reads|is written by sequences/);
  });

  test("a prefix hit across salts", () => {
    const cache = new CacheState(options);
    const prefix = cache.groups[0]!.prefix!;
    const find = prefix.find.bind(prefix);
    prefix.find = (parent, _salt, tokens, offset) => find(parent, "", tokens, offset);
    expect(() => work(cache)).toThrow(/reads a foreign KV|is found as/);
  });

  test("a lost table delta, a lost copy", () => {
    let steps = 0;
    expect(() =>
      work(new CacheState(options), (plan) => {
        if (++steps > 5) plan.tableDeltas = plan.tableDeltas.subarray(4);
      }),
    ).toThrow(/: block -7|reads a foreign KV|writes block|is written by/);
    expect(() =>
      work(new CacheState(options), (plan) => {
        plan.blockOps = plan.blockOps.subarray(4);
      }),
    ).toThrow(/reads a foreign KV/);
  });

  test("a wrong known token", () => {
    let steps = 0;
    const tamper = (plan: StepPlan) => {
      if (++steps === 7) plan.tokens.view()[0]! ^= 1;
    };
    expect(() => work(new CacheState(options), tamper)).toThrow(/history has|reads the last token/);
  });

  test.each([true, false])(
    "the untouched cache passes the same work with swaps, too; prefix cache %j",
    (prefixCaching) => {
      const simulation = work(new CacheState(swapping({ prefixCaching })));
      for (const { request, text } of simulation.outcomes.values()) expect(text).toEqual(textAlone(request));
      expect(Math.min(simulation.scheduler.stats().numSwaps, ...Object.values(simulation.numBlocks))).toBeGreaterThan(
        0,
      );
      simulation.executor.checkPoison();
    },
  );

  test.each([
    ["lost", (ops: number[][]) => ops.filter(([kind]) => kind !== blockOp.swapOut)],
    [
      "late",
      (ops: number[][]) => ops.sort((a, b) => Number(a[0] === blockOp.swapOut) - Number(b[0] === blockOp.swapOut)),
    ],
    ["not undone", (ops: number[][]) => ops.filter(([kind]) => kind !== blockOp.swapIn)],
  ])("a move to the host that is %s", (_, tamper) => {
    expect(() => work(new CacheState(swapping()), tamperOps(tamper))).toThrow(/reads a foreign KV/);
  });

  test("host slots never given back, or given back twice", () => {
    const leaking = new CacheState(swapping());
    leaking.groups[0]!.host.release = () => {};
    expect(() => work(leaking)).toThrow(/host slot .* references/);
    expect(() => work(new DropsTwice(swapping()))).toThrow(/host slot .*, which nobody holds/);
  });

  test("a freed block that keeps what it held", () => {
    const simulation = work(
      new CacheState(swapping()),
      tamperOps((ops) => ops.filter(([kind]) => kind !== blockOp.poison)),
    );
    expect(() => simulation.executor.checkPoison()).toThrow(/is not poisoned/);
  });
});
