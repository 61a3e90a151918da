// Divides bytes among cache groups, so that all of them hold about as many tokens. Not here: what a machine has (api) and allocation.
import { InferxError } from "../base/errors.ts";
import type { CacheGroupSpec } from "./cache-group.ts";

/** What one sequence's table costs in a group whose need does not grow with its length: the window and a block being filled, or a state. */
function blocksOf(spec: CacheGroupSpec, numTokens: number, maxRows: number): number {
  if (spec.kind === "state") return maxRows;
  const blocks = Math.ceil(numTokens / spec.tokensPerBlock);
  if (spec.kind === "full") return blocks;
  return Math.min(blocks, maxRows * (Math.ceil(spec.window! / spec.tokensPerBlock) + 2));
}

/** Bytes of a cache that holds `numTokens` tokens of up to `maxRows` sequences. */
export function cacheBytes(specs: readonly CacheGroupSpec[], numTokens: number, maxRows: number): number {
  return specs.reduce((sum, spec) => sum + blocksOf(spec, numTokens, maxRows) * spec.bytesPerBlock, 0);
}

/**
 * Blocks per group for a cache of `bytes`: as many tokens as fit, at most `maxTokens`.
 * IX_OUT_OF_MEMORY where not even one block of each group fits.
 */
export function divideBytes(
  specs: readonly CacheGroupSpec[],
  bytes: number,
  maxTokens: number,
  maxRows: number,
): { numTokens: number; numBlocks: number[] } {
  let fits = 0;
  let tooMany = maxTokens + 1;
  while (tooMany - fits > 1) {
    const middle = Math.floor((fits + tooMany) / 2);
    if (cacheBytes(specs, middle, maxRows) <= bytes) fits = middle;
    else tooMany = middle;
  }
  if (fits === 0) {
    const needed = cacheBytes(specs, 1, maxRows);
    throw new InferxError("IX_OUT_OF_MEMORY", `a KV cache of ${bytes} bytes holds no token; the least is ${needed}`, {
      bytes,
      needed,
    });
  }
  return { numTokens: fits, numBlocks: specs.map((spec) => blocksOf(spec, fits, maxRows)) };
}
