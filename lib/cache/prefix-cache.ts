// The trie of full blocks of one cache group: which block holds the KV of these tokens after that parent block.
// Not here: references and lists (block-pool.ts). A hash only finds candidates; tokens, parent and salt are compared.
import { invariant } from "../base/invariant.ts";
import type { BlockPool } from "./block-pool.ts";

/** The parent of the first block of a sequence. */
export const rootBlock = -1;

/**
 * Nodes are block ids. A node's parent is always a node too: evicting a block drops its whole subtree, so the pair
 * (parent id, generation) of a node never goes stale. Owners release the blocks of a sequence last first; so the least
 * recently used block is a leaf, except in window groups, which let go of their oldest blocks early.
 */
export class PrefixCache {
  readonly tokensPerBlock: number;
  readonly #pool: BlockPool;
  readonly #tokens: Int32Array; // [numBlocks, tokensPerBlock]
  readonly #salts: (string | undefined)[]; // of children of the root; below, the parent implies the salt
  readonly #hash: Int32Array;
  readonly #parent: Int32Array;
  readonly #parentGeneration: Uint32Array;
  readonly #firstChild: Int32Array;
  readonly #nextSibling: Int32Array;
  readonly #previousSibling: Int32Array;
  readonly #buckets: Int32Array;
  readonly #nextInBucket: Int32Array;
  // A seed of our own, so that no client can aim at one bucket.
  readonly #seed = (Math.random() * 0x7fffffff) | 0;
  numNodes = 0;

  constructor(pool: BlockPool, tokensPerBlock: number) {
    this.#pool = pool;
    this.tokensPerBlock = tokensPerBlock;
    const ids = () => new Int32Array(pool.numBlocks).fill(-1);
    this.#tokens = new Int32Array(pool.numBlocks * tokensPerBlock);
    this.#salts = new Array(pool.numBlocks);
    this.#hash = ids();
    this.#parent = ids();
    this.#parentGeneration = new Uint32Array(pool.numBlocks);
    this.#firstChild = ids();
    this.#nextSibling = ids();
    this.#previousSibling = ids();
    this.#nextInBucket = ids();
    this.#buckets = new Int32Array(2 << (32 - Math.clz32(pool.numBlocks))).fill(-1);
    pool.evict = (block) => this.remove(block);
  }

  /** Fills `chain` with the cached blocks that hold the first tokens; returns how many (at most `longest`). */
  match(tokens: Int32Array, salt: string, chain: Int32Array, longest: number): number {
    let parent = rootBlock;
    let depth = 0;
    for (; depth < longest; depth++) {
      const block = this.find(parent, salt, tokens, depth * this.tokensPerBlock);
      if (block < 0) break;
      chain[depth] = parent = block;
    }
    return depth;
  }

  /** The block that holds tokens[offset, offset + tokensPerBlock) after `parent`, or -1. */
  find(parent: number, salt: string, tokens: Int32Array, offset: number): number {
    const hash = this.#hashOf(parent, salt, tokens, offset);
    let block = this.#buckets[hash & (this.#buckets.length - 1)]!;
    while (block >= 0 && !(this.#hash[block] === hash && this.#equals(block, parent, salt, tokens, offset))) {
      block = this.#nextInBucket[block]!;
    }
    return block;
  }

  /** Adds a computed, full block; the caller has seen that `find` fails and that the parent is a node. */
  insert(block: number, parent: number, salt: string, tokens: Int32Array, offset: number): void {
    const hash = this.#hashOf(parent, salt, tokens, offset);
    const bucket = hash & (this.#buckets.length - 1);
    this.#tokens.set(tokens.subarray(offset, offset + this.tokensPerBlock), block * this.tokensPerBlock);
    this.#hash[block] = hash;
    this.#nextInBucket[block] = this.#buckets[bucket]!;
    this.#buckets[bucket] = block;
    this.#parent[block] = parent;
    if (parent === rootBlock) {
      this.#salts[block] = salt;
    } else {
      this.#parentGeneration[block] = this.#pool.generation(parent);
      const sibling = this.#firstChild[parent]!;
      this.#nextSibling[block] = sibling;
      if (sibling >= 0) this.#previousSibling[sibling] = block;
      this.#firstChild[parent] = block;
    }
    this.numNodes++;
    this.#pool.cache(block);
  }

  parentOf(block: number): number {
    return this.#parent[block]!;
  }

  /** Forgets a block and all that follows it. Iterative: chains are as long as a context. */
  remove(block: number): void {
    let node = block;
    for (;;) {
      while (this.#firstChild[node]! >= 0) node = this.#firstChild[node]!;
      const parent = this.#parent[node]!;
      this.#unlink(node, parent);
      if (node === block) return;
      node = parent;
    }
  }

  clear(): void {
    for (let block = 0; block < this.#pool.numBlocks; block++) if (this.#pool.isCached(block)) this.remove(block);
  }

  /** Every cached block is found again under its own key, and its parent is the one it was inserted after. Throws IX_INTERNAL. */
  checkIntegrity(): void {
    let count = 0;
    for (let block = 0; block < this.#pool.numBlocks; block++) {
      if (!this.#pool.isCached(block)) continue;
      count++;
      const parent = this.#parent[block]!;
      const salt = this.#salts[block] ?? "";
      const found = this.find(parent, salt, this.#tokens, block * this.tokensPerBlock);
      invariant(found === block, `prefix block ${block} is found as ${found}`);
      if (parent === rootBlock) continue;
      invariant(this.#pool.isCached(parent), `prefix block ${block} follows block ${parent}, which is not cached`);
      const generation = this.#pool.generation(parent);
      invariant(
        generation === this.#parentGeneration[block],
        `prefix block ${block} follows an older use of ${parent}`,
      );
    }
    invariant(count === this.numNodes, `prefix cache has ${count} blocks, counted ${this.numNodes}`);
  }

  #unlink(block: number, parent: number): void {
    const after = this.#nextSibling[block]!;
    const before = this.#previousSibling[block]!;
    if (before >= 0) this.#nextSibling[before] = after;
    else if (parent !== rootBlock) this.#firstChild[parent] = after;
    if (after >= 0) this.#previousSibling[after] = before;
    this.#nextSibling[block] = this.#previousSibling[block] = -1;

    const bucket = this.#hash[block]! & (this.#buckets.length - 1);
    if (this.#buckets[bucket] === block) {
      this.#buckets[bucket] = this.#nextInBucket[block]!;
    } else {
      let other = this.#buckets[bucket]!;
      while (this.#nextInBucket[other] !== block) other = this.#nextInBucket[other]!;
      this.#nextInBucket[other] = this.#nextInBucket[block]!;
    }
    this.#salts[block] = undefined;
    this.numNodes--;
    this.#pool.uncache(block);
  }

  #equals(block: number, parent: number, salt: string, tokens: Int32Array, offset: number): boolean {
    if (this.#parent[block] !== parent) return false;
    if (parent === rootBlock) {
      if (this.#salts[block] !== salt) return false;
    } else if (this.#parentGeneration[block] !== this.#pool.generation(parent)) return false;
    const own = block * this.tokensPerBlock;
    for (let i = 0; i < this.tokensPerBlock; i++) if (this.#tokens[own + i] !== tokens[offset + i]) return false;
    return true;
  }

  /** 32 bits, murmur-like; enough to choose a bucket, since keys are compared. */
  #hashOf(parent: number, salt: string, tokens: Int32Array, offset: number): number {
    let hash = this.#seed ^ parent;
    if (parent === rootBlock) for (let i = 0; i < salt.length; i++) hash = mix(hash, salt.charCodeAt(i));
    else hash = mix(hash, this.#pool.generation(parent));
    for (let i = offset; i < offset + this.tokensPerBlock; i++) hash = mix(hash, tokens[i]!);
    return hash ^ (hash >>> 15);
  }
}

function mix(hash: number, value: number): number {
  const scrambled = Math.imul(value, 0xcc9e2d51);
  const mixed = hash ^ Math.imul((scrambled << 15) | (scrambled >>> 17), 0x1b873593);
  return (Math.imul((mixed << 13) | (mixed >>> 19), 5) + 0xe6546b64) | 0;
}
