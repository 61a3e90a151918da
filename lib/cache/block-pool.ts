// Ownership of blocks: reference counts, generations and three lists (free, retired, evictable). O(1) throughout, typed arrays.
// Not here: what a block holds (prefix-cache.ts) and who uses it (kv-cache.ts). Device rows are handed out by the same class.
import { invariant } from "../base/invariant.ts";

// A block is in use (refs > 0) or in exactly one list:
//   retired    unreferenced, but a step in flight may still read or write it
//   free       unreferenced, content dead
//   evictable  unreferenced, content still reachable through the prefix cache; least recently released first
const inUse = 0;
const free = 1;
const retired = 2;
const evictable = 3;

/** Integer blocks 0 .. numBlocks - 1. Epochs are step ids: what is released while step n is the last submitted one waits for n. */
export class BlockPool {
  readonly numBlocks: number;
  /** Drops a block (and what hangs on it) from the prefix cache by calling `uncache`; set by the prefix cache. */
  evict: (block: number) => void = (block) => this.uncache(block);
  /** Hears of each block whose content is given up, before anybody can get it. */
  onFree: (block: number) => void = () => {};

  /** Blocks that became allocatable, ever: while it stands still, what found no room finds none. */
  numReturned = 0;

  readonly #refs: Int32Array;
  readonly #generation: Uint32Array;
  readonly #cached: Uint8Array;
  readonly #list: Uint8Array;
  readonly #epoch: Float64Array;
  // Doubly linked rings; the sentinel of list k is numBlocks + k.
  readonly #next: Int32Array;
  readonly #previous: Int32Array;
  readonly #counts = [0, 0, 0, 0];
  #submitted = 0;
  #completed = 0;

  constructor(numBlocks: number) {
    this.numBlocks = numBlocks;
    this.#refs = new Int32Array(numBlocks);
    this.#generation = new Uint32Array(numBlocks);
    this.#cached = new Uint8Array(numBlocks);
    this.#list = new Uint8Array(numBlocks);
    this.#epoch = new Float64Array(numBlocks);
    this.#next = Int32Array.from({ length: numBlocks + 4 }, (_, i) => i);
    this.#previous = this.#next.slice();
    this.#counts[inUse] = numBlocks;
    for (let block = 0; block < numBlocks; block++) this.#move(block, free);
  }

  get numAllocatable(): number {
    return this.#counts[free]! + this.#counts[evictable]!;
  }

  /** Unreferenced, but waiting for a step in flight: allocatable soon without preempting anybody. */
  get numRetired(): number {
    return this.#counts[retired]!;
  }

  get numEvictable(): number {
    return this.#counts[evictable]!;
  }

  get numUsed(): number {
    return this.#counts[inUse]!;
  }

  /** Changes at each allocation, so (block, generation) names a content for good. */
  generation(block: number): number {
    return this.#generation[block]!;
  }

  isCached(block: number): boolean {
    return this.#cached[block] === 1;
  }

  isEvictable(block: number): boolean {
    return this.#list[block] === evictable;
  }

  isFree(block: number): boolean {
    return this.#list[block] === free;
  }

  /** May the only owner write into it? Shared and cached blocks are copied first. */
  isWritable(block: number): boolean {
    return this.#refs[block] === 1 && this.#cached[block] === 0;
  }

  /** A block with one reference, evicting the least recently used cached one if need be; -1 when none is allocatable. */
  allocate(): number {
    if (this.#counts[free] === 0) {
      if (this.#counts[evictable] === 0) return -1;
      this.evict(this.#next[this.numBlocks + evictable]!);
    }
    const block = this.#next[this.numBlocks + free]!;
    this.#move(block, inUse);
    this.#refs[block] = 1;
    this.#generation[block]!++;
    return block;
  }

  /** One more owner; also revives a block that nobody references, if its content has not been given up. */
  retain(block: number): void {
    if (this.#refs[block]!++ === 0) {
      invariant(this.#list[block] !== free, `retain of block ${block}, which is free`);
      this.#move(block, inUse);
    }
  }

  /** One owner less. `epoch`: the last step that may touch the block, by default the last submitted one. */
  release(block: number, epoch = this.#submitted): void {
    invariant(this.#refs[block]! > 0, `release of block ${block}, which nobody holds`);
    const last = Math.max(epoch, this.#epoch[block]!); // an owner that let go earlier may have a later step copy from it
    this.#epoch[block] = last;
    if (--this.#refs[block]! > 0) return;
    if (last > this.#completed) this.#move(block, retired);
    else this.#move(block, this.#cached[block] === 1 ? evictable : free);
  }

  /** The prefix cache holds this block's content from now on. */
  cache(block: number): void {
    this.#cached[block] = 1;
  }

  /** The prefix cache forgets the block; it is free once unreferenced. */
  uncache(block: number): void {
    this.#cached[block] = 0;
    if (this.#list[block] === evictable) this.#move(block, free);
  }

  submitEpoch(epoch: number): void {
    this.#submitted = epoch;
  }

  completeEpoch(epoch: number): void {
    this.#completed = epoch;
    const sentinel = this.numBlocks + retired;
    for (let block = this.#next[sentinel]!; block !== sentinel; block = this.#next[sentinel]!) {
      if (this.#epoch[block]! > epoch) break;
      this.#move(block, this.#cached[block] === 1 ? evictable : free);
    }
  }

  /** Compares with the references counted by the owner: `owned` [numBlocks]. Throws IX_INTERNAL. */
  checkIntegrity(owned: Int32Array): void {
    const listed = new Uint8Array(this.numBlocks);
    for (const list of [free, retired, evictable]) {
      let count = 0;
      for (let b = this.#next[this.numBlocks + list]!; b < this.numBlocks; b = this.#next[b]!, count++) {
        invariant(
          this.#list[b] === list && listed[b] === 0,
          `block ${b} is in list ${list} but marked ${this.#list[b]}`,
        );
        listed[b] = 1;
        if (list !== retired) {
          invariant((list === evictable) === this.isCached(b), `block ${b}: cached flag contradicts list ${list}`);
        }
      }
      invariant(count === this.#counts[list], `list ${list} has ${count} blocks, counted ${this.#counts[list]}`);
    }
    for (let b = 0; b < this.numBlocks; b++) {
      invariant(this.#refs[b] === owned[b], `block ${b} has ${this.#refs[b]} references, owners hold ${owned[b]}`);
      invariant(
        this.#refs[b]! > 0 === (listed[b] === 0),
        `block ${b} with ${this.#refs[b]} references, listed ${listed[b]}`,
      );
    }
  }

  #move(block: number, list: number): void {
    const from = this.#list[block]!;
    this.#counts[from]!--;
    this.#counts[list]!++;
    this.#list[block] = list;
    if (from !== inUse) {
      const before = this.#previous[block]!;
      const after = this.#next[block]!;
      this.#next[before] = after;
      this.#previous[after] = before;
    }
    if (list === inUse) return;
    if (list !== retired && (from === inUse || from === retired)) this.numReturned++;
    const sentinel = this.numBlocks + list;
    const last = this.#previous[sentinel]!;
    this.#next[last] = this.#previous[sentinel] = block;
    this.#previous[block] = last;
    this.#next[block] = sentinel;
    if (list === free) this.onFree(block);
  }
}
