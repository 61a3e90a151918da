// Dividing bytes among cache groups: never more than given, never much less, the same tokens in each group.
import fc from "fast-check";
import { expect, test } from "vitest";
import type { CacheGroupSpec } from "../../lib/cache/cache-group.ts";
import { cacheBytes, divideBytes } from "../../lib/cache/sizing.ts";

const group = fc.record({
  layers: fc.constant([0]),
  kind: fc.constantFrom("full" as const, "window" as const, "state" as const),
  window: fc.integer({ min: 1, max: 200 }),
  tokensPerBlock: fc.constant(32),
  bytesPerBlock: fc.integer({ min: 1, max: 5000 }),
  dtype: fc.constant("f16"),
});

test("as many tokens as fit, and not one more", () => {
  fc.assert(
    fc.property(
      fc.array(group, { minLength: 1, maxLength: 3 }),
      fc.integer({ min: 0, max: 4_000_000 }),
      (groups, bytes) => {
        const specs: CacheGroupSpec[] = groups;
        const least = cacheBytes(specs, 1, 4);
        if (bytes < least) {
          expect(() => divideBytes(specs, bytes, 10_000, 4)).toThrow(
            expect.objectContaining({ code: "IX_OUT_OF_MEMORY" }),
          );
          return;
        }
        const { numTokens, numBlocks } = divideBytes(specs, bytes, 10_000, 4);
        const used = numBlocks.reduce((sum, blocks, i) => sum + blocks * specs[i]!.bytesPerBlock, 0);
        expect(used).toBeLessThanOrEqual(bytes);
        expect(used).toBe(cacheBytes(specs, numTokens, 4));
        if (numTokens < 10_000) expect(cacheBytes(specs, numTokens + 1, 4)).toBeGreaterThan(bytes);
        for (const [i, blocks] of numBlocks.entries()) {
          if (specs[i]!.kind === "full") expect(blocks).toBe(Math.ceil(numTokens / 32));
        }
      },
    ),
  );
});
