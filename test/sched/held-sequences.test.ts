// What the cache keeps of a preempted sequence: on the device while nobody takes it, on the host then, and back when it goes on.
import { describe, expect, test } from "vitest";
import { blockOp } from "../../lib/cache/block-ops.ts";
import type { CacheGroupSpec } from "../../lib/cache/cache-group.ts";
import { type CacheOptions, CacheState } from "../../lib/cache/kv-cache.ts";

const spec = { layers: [0], tokensPerBlock: 4, bytesPerBlock: 64, dtype: "f32" } as const;
const full: CacheGroupSpec = { ...spec, kind: "full" };
const window: CacheGroupSpec = { ...spec, kind: "window", window: 6 };
const state: CacheGroupSpec = { ...spec, kind: "state" };
const tokens = Int32Array.from({ length: 40 }, (_, i) => 10 + i);

function cacheOf(specs: CacheGroupSpec[], more: Partial<CacheOptions> = {}, numHostSlots = 6): CacheState {
  const groups = specs.map((group) => ({ spec: group, numBlocks: 8, numHostSlots }));
  const cache = new CacheState({ groups, maxRows: 4, maxTokens: 64, prefixCaching: false, ...more });
  cache.beginStep(1);
  return cache;
}

function start(cache: CacheState, numTokens: number, salt = ""): number {
  const row = cache.open(tokens, 0, salt, numTokens);
  expect(cache.reserve(row, numTokens)).toBe(numTokens);
  return row;
}

/** Holds and closes. */
function preempt(cache: CacheState, row: number) {
  const held = cache.hold(row);
  cache.close(row);
  cache.checkIntegrity();
  return held;
}

const ops = (cache: CacheState) =>
  Array.from({ length: cache.ops.view().length / 4 }, (_, i) => [...cache.ops.view().subarray(4 * i, 4 * i + 4)]);
const kinds = (cache: CacheState) => ops(cache).map(([kind]) => kind);
const blocks = (cache: CacheState, row: number, count: number) => {
  const { table, maxColumns } = cache.groups[0]!;
  return [...table.subarray(row * maxColumns, row * maxColumns + count)];
};

describe("held sequences", () => {
  test("freed at once: out to the host, and back into other blocks", () => {
    const cache = cacheOf([full]);
    const before = blocks(cache, start(cache, 10), 3);
    const held = preempt(cache, 0)!;
    expect(ops(cache)).toEqual([2, 1, 0].map((i) => [blockOp.swapOut, 0, before[i], held.groups[0]!.slots[i]]));
    expect(cache.usage()[0]).toMatchObject({ usedBlocks: 0, usedHostSlots: 3 });
    expect(cache.ops.swapBytes).toBe(3 * 64);
    const row = cache.open(tokens, 30, "", 20, held);
    expect(cache.numTokens(row)).toBe(10);
    const after = blocks(cache, row, 3);
    expect(ops(cache).slice(3)).toEqual([0, 1, 2].map((i) => [blockOp.swapIn, 0, held.groups[0]!.slots[i], after[i]]));
    expect(cache.usage()[0]).toMatchObject({ usedBlocks: 3, usedHostSlots: 0 });
    cache.checkIntegrity();
  });

  test("cached blocks are moved only when somebody takes them", () => {
    const cache = cacheOf([full], { prefixCaching: true });
    const row = start(cache, 16);
    const before = blocks(cache, row, 4);
    cache.commit(row, 16, tokens);
    const held = preempt(cache, row)!;
    expect(kinds(cache)).toEqual([]);
    start(cache, 24, "other"); // six of eight blocks: the last two of the chain go
    expect(ops(cache).map(([kind, , block]) => [kind, block])).toEqual([
      [blockOp.swapOut, before[3]],
      [blockOp.swapOut, before[2]],
    ]);
    cache.close(0 === row ? 1 : 0);
    const again = cache.open(tokens, 30, "", 16, held);
    expect(cache.numTokens(again)).toBe(16);
    expect(blocks(cache, again, 2)).toEqual(before.slice(0, 2));
    expect(kinds(cache).filter((kind) => kind === blockOp.swapIn).length).toBe(2);
    // What came back can be found again once it is committed.
    cache.commit(again, 16, tokens);
    expect(cache.match(tokens, "")).toBe(16);
    cache.checkIntegrity();
  });

  test("who shares a partial block with a held sequence copies it before writing", () => {
    const cache = cacheOf([full]);
    const row = start(cache, 11);
    const shared = blocks(cache, row, 3)[2]!;
    const fork = cache.fork(row, 9, 11);
    const held = preempt(cache, row)!;
    expect(kinds(cache)).toEqual([]); // the fork has all of them
    cache.reserve(fork, 1);
    expect(ops(cache)[0]!.slice(0, 3)).toEqual([blockOp.copy, 0, shared]);
    cache.close(fork);
    // The copy's source waits for this step, which reads it; it can be taken again before that.
    expect(kinds(cache).filter((kind) => kind === blockOp.swapOut).length).toBe(2);
    const again = cache.open(tokens, 30, "", 11, held);
    expect([cache.numTokens(again), blocks(cache, again, 3)[2]]).toEqual([11, shared]);
    cache.checkIntegrity();
  });

  test("several held sequences that shared blocks share the slots", () => {
    const cache = cacheOf([full]);
    const row = start(cache, 8);
    const fork = cache.fork(row, 8, 8);
    const held = [preempt(cache, row)!, preempt(cache, fork)!];
    expect(cache.usage()[0]!.usedHostSlots).toBe(2);
    expect(kinds(cache)).toEqual([blockOp.swapOut, blockOp.swapOut]);
    cache.open(tokens, 30, "", 8, held[0]);
    expect(cache.usage()[0]!.usedHostSlots).toBe(2);
    cache.drop(held[1]!);
    expect(cache.usage()[0]!.usedHostSlots).toBe(0);
    cache.checkIntegrity();
  });

  test("slots out, or none: nothing is kept", () => {
    const none = cacheOf([full], {}, 0);
    expect(preempt(none, start(none, 1))).toBeUndefined();
    const cache = cacheOf([full], {}, 2);
    expect(preempt(cache, start(cache, 9))).toBeUndefined();
    expect(kinds(cache)).toEqual([]);
    expect(preempt(cache, start(cache, 8))).toBeDefined();
    expect(preempt(cache, start(cache, 1))).toBeUndefined();
  });

  test("less than was held: where the group can, else it is computed again", () => {
    for (const { groups, held: numHeld, found } of [
      { groups: [full], held: 8, found: 7 },
      { groups: [full, state], held: 8, found: 0 },
      { groups: [full, window], held: 8, found: 7 },
      { groups: [full, window], held: 14, found: 0 }, // position 7 is held no more, and the 14th token may see it
    ]) {
      const cache = cacheOf(groups);
      const held = preempt(cache, start(cache, numHeld))!;
      expect(cache.numTokens(cache.open(tokens, numHeld - 1, "", numHeld, held))).toBe(found);
      expect(cache.usage().map(({ usedHostSlots }) => usedHostSlots)).toEqual(groups.map(() => 0));
      cache.checkIntegrity();
    }
  });

  test("a window holds what it still sees", () => {
    const cache = cacheOf([window]);
    const row = start(cache, 16);
    cache.reserve(row, 4);
    const held = preempt(cache, row)!;
    expect(held.groups[0]).toMatchObject({ first: 3 });
    expect(cache.usage()[0]!.usedHostSlots).toBe(2);
    const again = cache.open(tokens, 30, "", 20, held);
    expect([cache.numTokens(again), cache.groups[0]!.firstColumn(again)]).toEqual([20, 3]);
    cache.checkIntegrity();
  });

  test("no room: nothing changes", () => {
    const cache = cacheOf([full]);
    const held = preempt(cache, start(cache, 20))!;
    start(cache, 16);
    const before = [kinds(cache).length, cache.usage()[0]];
    expect(cache.open(tokens, 30, "", 20, held)).toBe(-1);
    expect([kinds(cache).length, cache.usage()[0]]).toEqual(before);
    cache.drop(held);
    cache.checkIntegrity();
  });
});
