// How many blocks a cache gets, and what a model will take: arithmetic before memory is taken.
import { InferxError } from "../base/errors.ts";

export interface CacheSize {
  bytes?: number | undefined;
  share?: number | undefined;
  blocks?: number | undefined;
}

/** Sequences of full length that the default cache holds. */
const defaultSequences = 8;
const defaultShare = 0.25;

/**
 * Blocks per cache group. `blockBytes`: of one block over all groups.
 * @throws IX_OUT_OF_MEMORY when not even one block fits the wish
 */
export function numBlocks(size: CacheSize, blockBytes: number, blocksPerSequence: number, freeBytes: number): number {
  if (size.blocks !== undefined) return size.blocks;
  const wanted =
    size.bytes !== undefined
      ? size.bytes
      : size.share !== undefined
        ? freeBytes * size.share
        : Math.min(defaultSequences * blocksPerSequence * blockBytes, Math.max(freeBytes * defaultShare, blockBytes));
  const blocks = Math.floor(wanted / blockBytes);
  if (blocks < 1) {
    throw new InferxError(
      "IX_OUT_OF_MEMORY",
      `a cache of ${megabytes(wanted)} does not hold one block of ${megabytes(blockBytes)}`,
      { wanted, blockBytes },
    );
  }
  return Math.min(blocks, 1 << 24);
}

/** @throws IX_OUT_OF_MEMORY naming what is needed, what is free and what would fit */
export function checkFits(
  needed: { weightBytes: number; cacheBytes: number; activationBytes: number },
  freeBytes: number,
): void {
  const total = needed.weightBytes + needed.cacheBytes + needed.activationBytes;
  if (total <= freeBytes) return;
  const left = freeBytes - needed.weightBytes - needed.activationBytes;
  const advice = left > 0 ? `a cache of at most ${megabytes(left)} would fit` : "the weights alone do not fit";
  throw new InferxError(
    "IX_OUT_OF_MEMORY",
    `weights ${megabytes(needed.weightBytes)}, cache ${megabytes(needed.cacheBytes)} and activations ${megabytes(needed.activationBytes)} exceed the free ${megabytes(freeBytes)}: ${advice}`,
    { ...needed, freeBytes },
  );
}

function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(bytes < 1e7 ? 2 : 0)} MB`;
}
