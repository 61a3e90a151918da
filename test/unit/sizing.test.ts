// How large a cache becomes by default and by wish, and what is said where it does not fit.
import { totalmem } from "node:os";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  type BlockShape,
  type CacheSize,
  checkFits,
  numBlocks,
  numHostSlots,
  type Surroundings,
} from "../../lib/engine/sizing.ts";
import { errorOf } from "./error-of.ts";

const shape: BlockShape = { blockBytes: 8_388_608, blockTokens: 64, contextLength: 8192, maxSequences: 256 };
const gpu: Surroundings = {
  kind: "cuda",
  weightBytes: 16e9,
  activationBytes: 1e9,
  freeBytes: 140e9,
  memoryBytes: 150e9,
};
const cpu: Surroundings = { ...gpu, kind: "cpu" };
const bytes = (size: CacheSize, around: Surroundings, of = shape) => numBlocks(size, of, around) * of.blockBytes;

describe("the default", () => {
  test("on a GPU: what weights, activations, 1 GB and 1 % leave, in whole blocks", () => {
    const left = 140e9 - 16e9 - 1e9 - 1e9 - 1.5e9;
    expect(bytes({}, gpu)).toBeLessThanOrEqual(left);
    expect(bytes({}, gpu)).toBeGreaterThan(left - shape.blockBytes);
  });
  test("on a GPU: no more than all sequences need at full length", () => {
    const small = { ...shape, maxSequences: 4, contextLength: 100 };
    expect(numBlocks({}, small, gpu)).toBe(4 * 2);
  });
  test("on a CPU: 8 full sequences, or a quarter of what is free", () => {
    expect(numBlocks({}, shape, { ...cpu, freeBytes: 1e12 })).toBe((8 * 8192) / 64);
    expect(bytes({}, { ...cpu, freeBytes: 8e9 })).toBeLessThanOrEqual(2e9);
    expect(bytes({}, { ...cpu, freeBytes: 8e9 })).toBeGreaterThan(2e9 - shape.blockBytes);
  });
  test("always fits where anything does", () => {
    const amount = fc.integer({ min: 0, max: 200_000 }).map((megabytes) => megabytes * 1e6);
    fc.assert(
      fc.property(amount, amount, amount, (weightBytes, activationBytes, freeBytes) => {
        const around = { ...gpu, weightBytes, activationBytes, freeBytes };
        const cache = bytes({}, around);
        expect(cache).toBeGreaterThan(0);
        const left = freeBytes - weightBytes - activationBytes;
        if (left >= shape.blockBytes) expect(() => checkFits(cache, shape, around)).not.toThrow();
        else expect(errorOf(() => checkFits(cache, shape, around)).code).toBe("IX_OUT_OF_MEMORY");
      }),
    );
  });
});

describe("a wish", () => {
  test("is followed on both", () => {
    for (const around of [cpu, gpu]) {
      expect(numBlocks({ blocks: 17 }, shape, around)).toBe(17);
      expect(bytes({ bytes: 1e9 }, around)).toBe(Math.floor(1e9 / shape.blockBytes) * shape.blockBytes);
      expect(bytes({ share: 0.5 }, around)).toBe(Math.floor(70e9 / shape.blockBytes) * shape.blockBytes);
    }
  });
  test("that holds no block is refused", () => {
    const error = errorOf(() => numBlocks({ bytes: 1000 }, shape, gpu));
    expect(error.code).toBe("IX_OUT_OF_MEMORY");
    expect(error.details).toEqual({ wanted: 1000, blockBytes: shape.blockBytes });
  });
});

describe("what does not fit", () => {
  test("is told with the cache and the length that would", () => {
    const error = errorOf(() => checkFits(150e9, shape, gpu));
    expect(error.code).toBe("IX_OUT_OF_MEMORY");
    const blocks = Math.floor(123e9 / shape.blockBytes);
    const fitting = { cacheBytes: blocks * shape.blockBytes, contextLength: blocks * 64 };
    expect(error.details).toEqual({
      weightBytes: 16e9,
      cacheBytes: 150e9,
      activationBytes: 1e9,
      freeBytes: 140e9,
      fitting,
    });
    for (const part of ["16000 MB", "150000 MB", "1000 MB", "140000 MB", String(fitting.contextLength), "cache.bytes"])
      expect(error.message).toContain(part);
    expect(() => checkFits(fitting.cacheBytes, shape, gpu)).not.toThrow();
    expect(() => checkFits(fitting.cacheBytes + shape.blockBytes, shape, gpu)).toThrow();
  });
  test("names the part that is too large", () => {
    expect(errorOf(() => checkFits(1e9, shape, { ...gpu, weightBytes: 141e9 })).message).toContain("weights alone");
    const activations = { ...gpu, activationBytes: 130e9 };
    expect(errorOf(() => checkFits(1e9, shape, activations)).message).toContain("lower maxStepTokens or maxSequences");
  });
});

describe("host slots", () => {
  const cache = { blocks: 1000, cacheBytes: 1000 * shape.blockBytes };
  test("none on a CPU by default; on a GPU at most 4 GB, and no more than the cache has", () => {
    expect(numHostSlots({}, cache, "cpu")).toBe(0);
    const slots = numHostSlots({}, cache, "cuda");
    expect(slots).toBe(
      Math.floor(Math.min(totalmem() / 16, 4e9, (process.constrainedMemory() || 1e18) / 16) / shape.blockBytes),
    );
    expect(numHostSlots({}, { blocks: 3, cacheBytes: 3 * shape.blockBytes }, "cuda")).toBe(3);
  });
  test("as wished for on both; refused where the host has less", () => {
    for (const device of ["cpu", "cuda"]) {
      expect(numHostSlots({ swapBytes: 10 * shape.blockBytes + 1 }, cache, device)).toBe(10);
      expect(numHostSlots({ swapBytes: 0 }, cache, device)).toBe(0);
      expect(errorOf(() => numHostSlots({ swapBytes: 1e16 }, cache, device)).code).toBe("IX_OUT_OF_MEMORY");
    }
  });
});
