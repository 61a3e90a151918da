// How many blocks a cache gets, and what a model will take: arithmetic before memory is taken.
import { totalmem } from "node:os";
import { InferxError } from "../base/errors.ts";

export interface CacheSize {
  bytes?: number | undefined;
  share?: number | undefined;
  blocks?: number | undefined;
  swapBytes?: number | undefined;
}

/** What a model takes besides its cache, and where. */
export interface Surroundings {
  kind: "cpu" | "cuda";
  weightBytes: number;
  activationBytes: number;
  /** Of the device: free now, and in all. */
  freeBytes: number;
  memoryBytes: number;
}

export interface BlockShape {
  /** Bytes of one block over all groups. */
  blockBytes: number;
  blockTokens: number;
  /** Tokens of the longest sequence. */
  contextLength: number;
  /** Sequences that may run at a time. */
  maxSequences: number;
}

/** Sequences of full length that the default cache of a CPU holds, and the share of its free memory that it takes at most. */
const cpuDefault = { sequences: 8, share: 0.25 };
/**
 * What a GPU's default cache leaves free: kernels are loaded to the device at their first launch, captured steps and workspaces of
 * products are kept there, and none of that is in a plan. A share besides, because the display and other processes come and go.
 */
const reserved = { bytes: 1e9, share: 0.01 };
const maxBlocks = 1 << 24;

/**
 * Blocks per cache group. The default on a GPU: all memory that weights, activations and a reserve leave, but no more than all
 * sequences of a step need at full length; on a CPU, whose memory belongs to others, too, 8 sequences and at most a quarter.
 * @throws IX_OUT_OF_MEMORY when not even one block fits
 */
export function numBlocks(size: CacheSize, shape: BlockShape, around: Surroundings): number {
  if (size.blocks !== undefined) return size.blocks;
  const { blockBytes, blockTokens, contextLength, maxSequences } = shape;
  const perSequence = Math.ceil(contextLength / blockTokens) * blockBytes;
  const { freeBytes } = around;
  const wanted = () => {
    if (size.bytes !== undefined) return size.bytes;
    if (size.share !== undefined) return freeBytes * size.share;
    if (around.kind === "cuda") {
      const reserve = reserved.bytes + reserved.share * around.memoryBytes;
      const left = freeBytes - around.weightBytes - around.activationBytes - reserve;
      return Math.min(Math.max(left, blockBytes), maxSequences * perSequence); // one block too many: checkFits explains
    }
    return Math.min(cpuDefault.sequences * perSequence, Math.max(freeBytes * cpuDefault.share, blockBytes));
  };
  const bytes = wanted();
  const blocks = Math.floor(bytes / blockBytes);
  if (blocks < 1) {
    throw new InferxError(
      "IX_OUT_OF_MEMORY",
      `a cache of ${megabytes(bytes)} does not hold one block of ${megabytes(blockBytes)}`,
      { wanted: bytes, blockBytes },
    );
  }
  return Math.min(blocks, maxBlocks);
}

/**
 * Blocks per cache group that the host keeps for preempted sequences. By default a GPU gets a sixteenth of the host's memory, at most 4 GB
 * and never more than its own cache has: locked memory is lost to everybody else and takes time to lock, and more than a few sequences
 * are seldom preempted at a time. A CPU gets none: its cache is host memory already.
 * @throws IX_OUT_OF_MEMORY when the host has less than is wished for
 */
export function numHostSlots(size: CacheSize, cache: { blocks: number; cacheBytes: number }, device: string): number {
  const blockBytes = cache.cacheBytes / cache.blocks;
  const memory = Math.min(totalmem(), process.constrainedMemory() || Number.POSITIVE_INFINITY);
  if (size.swapBytes !== undefined) {
    if (size.swapBytes <= memory) return Math.min(Math.floor(size.swapBytes / blockBytes), maxBlocks);
    const lack = `swapBytes of ${megabytes(size.swapBytes)} exceed the host's ${megabytes(memory)}`;
    throw new InferxError("IX_OUT_OF_MEMORY", lack, { swapBytes: size.swapBytes, memory });
  }
  if (device === "cpu") return 0;
  return Math.min(Math.floor(Math.min(memory / 16, 4e9) / blockBytes), cache.blocks);
}

/** @throws IX_OUT_OF_MEMORY naming what is needed, what is free and what would fit */
export function checkFits(cacheBytes: number, shape: BlockShape, around: Surroundings): void {
  const { weightBytes, activationBytes, freeBytes } = around;
  if (weightBytes + activationBytes + cacheBytes <= freeBytes) return;
  const blocks = Math.max(0, Math.floor((freeBytes - weightBytes - activationBytes) / shape.blockBytes));
  const fitting = { cacheBytes: blocks * shape.blockBytes, contextLength: blocks * shape.blockTokens };
  const advice =
    blocks > 0
      ? `a cache of at most ${megabytes(fitting.cacheBytes)} would fit, which holds a sequence of ${fitting.contextLength} tokens: set cache.bytes to at most ${fitting.cacheBytes}`
      : weightBytes > freeBytes
        ? "the weights alone do not fit"
        : "weights and activations leave no room for a cache: lower maxStepTokens or maxSequences";
  throw new InferxError(
    "IX_OUT_OF_MEMORY",
    `weights ${megabytes(weightBytes)}, cache ${megabytes(cacheBytes)} and activations ${megabytes(activationBytes)} exceed the free ${megabytes(freeBytes)}: ${advice}`,
    { weightBytes, cacheBytes, activationBytes, freeBytes, fitting },
  );
}

function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toFixed(bytes < 1e7 ? 2 : 0)} MB`;
}
