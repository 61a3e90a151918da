// The trie against a model that keeps whole prefixes as text; evictions take subtrees along.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { BlockPool } from "../../lib/cache/block-pool.ts";
import { PrefixCache, rootBlock } from "../../lib/cache/prefix-cache.ts";

const width = 2;
const action = fc.record({
  kind: fc.constantFrom("insert", "insert", "insert", "insert", "allocate", "remove"),
  tokens: fc.array(fc.integer({ min: 0, max: 1 }), { minLength: 0, maxLength: 9 }),
  salt: fc.constantFrom("", "s", "s2"),
  pick: fc.nat(),
});

describe("prefix cache", () => {
  test("finds exactly what a model of whole prefixes holds", () => {
    fc.assert(
      fc.property(fc.array(action, { maxLength: 120, size: "max" }), (actions) => {
        const pool = new BlockPool(12);
        const prefix = new PrefixCache(pool, width);
        const model = new Map<string, number>(); // "salt|t,t,t,t" -> block
        const forget = () => {
          for (const [key, block] of model) if (!pool.isCached(block)) model.delete(key);
        };
        const keyOf = (salt: string, tokens: number[], depth: number) =>
          `${salt}|${tokens.slice(0, depth * width).join()}`;
        const held: number[] = [];
        for (const { kind, tokens, salt, pick } of actions) {
          if (kind === "insert") {
            // As a sequence does: walk what is there, add the rest, release last first.
            const data = Int32Array.from(tokens);
            const chain = new Int32Array(8);
            let depth = prefix.match(data, salt, chain, Math.floor(tokens.length / width));
            for (let d = 1; d <= Math.floor(tokens.length / width); d++) {
              expect(model.get(keyOf(salt, tokens, d))).toBe(d <= depth ? chain[d - 1] : undefined);
            }
            const owned = [...chain.subarray(0, depth)];
            for (const block of owned) pool.retain(block);
            for (; (depth + 1) * width <= tokens.length; depth++) {
              const block = pool.allocate();
              forget();
              if (block < 0) break;
              prefix.insert(block, owned.at(-1) ?? rootBlock, salt, data, depth * width);
              model.set(keyOf(salt, tokens, depth + 1), block);
              owned.push(block);
            }
            for (const block of owned.reverse()) pool.release(block);
          } else if (kind === "allocate") {
            const block = pick % 3 === 0 && held.length > 0 ? -2 : pool.allocate();
            if (block >= 0) held.push(block);
            if (block === -2) pool.release(held.splice(pick % held.length, 1)[0]!);
            forget();
          } else if (model.size > 0) {
            const [key, block] = [...model][pick % model.size]!;
            const subtree = [...model.keys()].filter((other) => other === key || other.startsWith(`${key},`));
            prefix.remove(block);
            for (const other of subtree) model.delete(other);
          }
          expect(prefix.numNodes).toBe(model.size);
          prefix.checkIntegrity();
          const owned = new Int32Array(12);
          for (const block of held) owned[block]!++;
          pool.checkIntegrity(owned);
        }
      }),
    );
  });

  test("a block that was allocated again is no parent any more", () => {
    const pool = new BlockPool(2);
    const prefix = new PrefixCache(pool, 1);
    const tokens = Int32Array.from([1, 2]);
    const [parent, child] = [pool.allocate(), pool.allocate()];
    prefix.insert(parent, rootBlock, "", tokens, 0);
    prefix.insert(child, parent, "", tokens, 1);
    pool.release(parent);
    expect(pool.allocate()).toBe(parent); // evicted; the child is still referenced but no longer cached
    prefix.insert(parent, rootBlock, "", Int32Array.from([1]), 0);
    expect(prefix.match(tokens, "", new Int32Array(2), 2)).toBe(1);
    expect(pool.isCached(child)).toBe(false);
  });
});

describe("block pool", () => {
  test("a block released while a step is in flight is allocatable after it, and not before", () => {
    const pool = new BlockPool(1);
    const block = pool.allocate();
    pool.submitEpoch(1);
    pool.submitEpoch(2);
    pool.release(block);
    pool.completeEpoch(1);
    expect([pool.allocate(), pool.numRetired]).toEqual([-1, 1]);
    pool.completeEpoch(2);
    const generation = pool.generation(block);
    expect(pool.allocate()).toBe(block);
    expect(pool.generation(block)).toBe(generation + 1);
  });

  test("least recently released cached blocks go first, revived ones stay", () => {
    const pool = new BlockPool(3);
    const prefix = new PrefixCache(pool, 1);
    const blocks = [pool.allocate(), pool.allocate(), pool.allocate()];
    blocks.forEach((block, i) => {
      prefix.insert(block, rootBlock, "", Int32Array.from([i]), 0);
      pool.release(block);
    });
    pool.retain(blocks[0]!);
    expect([pool.allocate(), pool.allocate(), pool.allocate()]).toEqual([blocks[1], blocks[2], -1]);
  });
});
