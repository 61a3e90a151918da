// One cache group: layers whose KV lies in the same blocks, with the group's pool, prefix trie and block table.
// Not here: decisions over several groups (kv-cache.ts) and bytes of the device (the executor owns them).
import { invariant } from "../base/invariant.ts";
import { BlockPool } from "./block-pool.ts";
import type { IntList } from "./int-list.ts";
import { PrefixCache, rootBlock } from "./prefix-cache.ts";

/** What a plan's header declares about a group. */
export interface CacheGroupSpec {
  layers: readonly number[];
  /** full: all positions; window: the last `window` positions; state: one block per sequence, rewritten by each step. */
  kind: "full" | "window" | "state";
  window?: number;
  tokensPerBlock: number;
  /** Of one block over all layers of the group. */
  bytesPerBlock: number;
  dtype: string;
}

/** The chain of a row can no longer grow: the block that it would continue was evicted. */
const deadChain = 0x7fffffff;

/** Rows index the block table [maxRows, maxColumns]; the live columns of a row are [first, columns), below `first` it holds -1. */
export class CacheGroup {
  readonly index: number;
  readonly spec: CacheGroupSpec;
  readonly pool: BlockPool;
  readonly prefix: PrefixCache | undefined;
  readonly maxColumns: number;
  /** The host's copy of the device's block table. */
  readonly table: Int32Array;
  numPinned = 0;
  readonly #tokensPerBlock: number;
  readonly #columns: Int32Array;
  readonly #first: Int32Array;
  // How many of a row's blocks are known to the trie (under their own id or an equal block's), and the last such node.
  readonly #depth: Int32Array;
  readonly #chainEnd: Int32Array;
  readonly #chainGeneration: Uint32Array;

  constructor(
    index: number,
    spec: CacheGroupSpec,
    numBlocks: number,
    maxRows: number,
    maxTokens: number,
    cached: boolean,
  ) {
    this.index = index;
    this.spec = spec;
    this.#tokensPerBlock = spec.kind === "state" ? maxTokens : spec.tokensPerBlock;
    this.maxColumns = Math.ceil(maxTokens / this.#tokensPerBlock);
    this.pool = new BlockPool(numBlocks);
    this.prefix = cached ? new PrefixCache(this.pool, spec.tokensPerBlock) : undefined;
    this.table = new Int32Array(maxRows * this.maxColumns).fill(-1);
    this.#columns = new Int32Array(maxRows);
    this.#first = new Int32Array(maxRows);
    this.#depth = new Int32Array(maxRows);
    this.#chainEnd = new Int32Array(maxRows);
    this.#chainGeneration = new Uint32Array(maxRows);
  }

  /** The most blocks that a sequence of so many tokens holds at a time when it advances alone, token by token. */
  blocksFor(numTokens: number): number {
    const blocks = Math.ceil(numTokens / this.#tokensPerBlock);
    if (this.spec.kind !== "window") return blocks;
    return Math.min(blocks, Math.ceil(this.spec.window! / this.#tokensPerBlock) + 1);
  }

  /** Live columns of a row: [first, end). */
  firstColumn(row: number): number {
    return this.#first[row]!;
  }

  endColumn(row: number): number {
    return this.#columns[row]!;
  }

  /** Room for a new sequence of `numTokens` that shares the first `depth` blocks of `chain`? */
  hasRoom(chain: Int32Array, depth: number, numTokens: number): boolean {
    let allocatable = this.pool.numAllocatable;
    let needed = this.blocksFor(numTokens);
    for (let column = this.#firstNeeded(depth * this.#tokensPerBlock); column < depth; column++) {
      needed--;
      if (this.pool.isEvictable(chain[column]!)) allocatable--;
    }
    return needed <= allocatable;
  }

  /** A row that starts with the first `depth` blocks of a matched chain. */
  open(row: number, chain: Int32Array, depth: number, deltas: IntList): void {
    this.#share(row, chain, 0, this.#firstNeeded(depth * this.#tokensPerBlock), depth, deltas);
    this.#setChain(row, depth, depth === 0 ? rootBlock : chain[depth - 1]!);
  }

  /** Can a row start with the first `numTokens` tokens of `source`, which has `numSourceTokens`? */
  canFork(source: number, numTokens: number, numSourceTokens: number): boolean {
    if (this.spec.kind === "state") return numTokens === numSourceTokens;
    return this.#first[source]! <= this.#firstNeeded(numTokens);
  }

  /** Shares blocks; the partial last one is copied when either side writes into it. */
  fork(source: number, row: number, numTokens: number, deltas: IntList): void {
    let depth = this.#depth[source]!;
    let end = this.#chainEnd[source]!;
    if (!this.#chainIsAlive(source)) depth = deadChain;
    else for (; depth * this.#tokensPerBlock > numTokens; depth--) end = this.prefix!.parentOf(end);
    // What the trie has yet to learn is shared even where the window has passed it.
    const first = Math.min(this.#firstNeeded(numTokens), this.prefix === undefined ? deadChain : depth);
    const columns = Math.ceil(numTokens / this.#tokensPerBlock);
    this.#share(row, this.table, source * this.maxColumns, first, columns, deltas);
    this.#setChain(row, depth, end);
  }

  /** Lets go of what the window has passed; returns how many of `numNew` tokens after `numTokens` have room. */
  fit(row: number, numTokens: number, numNew: number, deltas: IntList): number {
    this.#releasePassed(row, numTokens, deltas);
    const room = this.pool.numAllocatable - (this.#mustCopy(row, numTokens) ? 1 : 0);
    if (room < 0) return 0;
    return Math.min(numNew, (this.#columns[row]! + room) * this.#tokensPerBlock - numTokens);
  }

  /** Allocates what `fit` found room for. `epoch`: the step being scheduled; it still reads the source of a copy. */
  take(row: number, numTokens: number, numNew: number, epoch: number, deltas: IntList, copies: IntList): void {
    if (this.#mustCopy(row, numTokens)) {
      const column = this.#columns[row]! - 1;
      const source = this.table[row * this.maxColumns + column]!;
      const block = this.pool.allocate();
      copies.push(this.index);
      copies.push(source);
      copies.push(block);
      this.#set(row, column, block, deltas);
      this.pool.release(source, epoch);
    }
    const columns = Math.ceil((numTokens + numNew) / this.#tokensPerBlock);
    while (this.#columns[row]! < columns) this.#set(row, this.#columns[row]!++, this.pool.allocate(), deltas);
  }

  /** Offers the blocks that are full by `numComputed` (completed) tokens to the prefix cache. */
  commit(row: number, numComputed: number, tokens: Int32Array, salt: string): void {
    const prefix = this.prefix;
    if (prefix === undefined) return;
    for (let depth = this.#depth[row]!; (depth + 1) * this.#tokensPerBlock <= numComputed; depth++) {
      if (!this.#chainIsAlive(row)) {
        this.#depth[row] = deadChain;
        return;
      }
      const parent = this.#chainEnd[row]!;
      const offset = depth * this.#tokensPerBlock;
      let block = prefix.find(parent, salt, tokens, offset);
      if (block < 0) {
        block = this.table[row * this.maxColumns + depth]!;
        prefix.insert(block, parent, salt, tokens, offset);
      }
      this.#setChain(row, depth + 1, block);
    }
  }

  close(row: number): void {
    for (let column = this.#columns[row]! - 1; column >= this.#first[row]!; column--) {
      this.pool.release(this.table[row * this.maxColumns + column]!);
    }
    this.#columns[row] = this.#first[row] = 0;
  }

  /** `owned` [numBlocks] gets the references of an open row added. */
  countReferences(row: number, numTokens: number, owned: Int32Array): void {
    const columns = this.#columns[row]!;
    invariant(
      columns === Math.ceil(numTokens / this.#tokensPerBlock),
      `row ${row}: ${columns} columns, ${numTokens} tokens`,
    );
    for (let column = 0; column < columns; column++) {
      const block = this.table[row * this.maxColumns + column]!;
      const live = column >= this.#first[row]!;
      invariant(
        live ? block >= 0 && block < owned.length : block === -1,
        `row ${row}, column ${column}: block ${block}`,
      );
      if (live) owned[block]!++;
    }
  }

  /** The first column that a token at `position` or later can still read. */
  #firstNeeded(position: number): number {
    if (this.spec.kind !== "window") return 0;
    return Math.max(0, Math.floor((position - this.spec.window!) / this.#tokensPerBlock));
  }

  #releasePassed(row: number, numTokens: number, deltas: IntList): void {
    let needed = this.#firstNeeded(numTokens);
    // A block that the trie has yet to learn must stay until its step has completed.
    if (this.prefix !== undefined) needed = Math.min(needed, this.#depth[row]!);
    for (let column = this.#first[row]!; column < needed; column++) {
      this.pool.release(this.table[row * this.maxColumns + column]!);
      this.#set(row, column, -1, deltas);
      this.#first[row] = column + 1;
    }
  }

  /** Do the next tokens go into a block that others see too? */
  #mustCopy(row: number, numTokens: number): boolean {
    if (numTokens === 0 || (this.spec.kind !== "state" && numTokens % this.#tokensPerBlock === 0)) return false;
    return !this.pool.isWritable(this.table[row * this.maxColumns + this.#columns[row]! - 1]!);
  }

  #share(row: number, blocks: Int32Array, offset: number, first: number, columns: number, deltas: IntList): void {
    this.#first[row] = first;
    this.#columns[row] = columns;
    this.table.fill(-1, row * this.maxColumns, row * this.maxColumns + first);
    for (let column = first; column < columns; column++) {
      const block = blocks[offset + column]!;
      this.pool.retain(block);
      this.#set(row, column, block, deltas);
    }
  }

  #set(row: number, column: number, block: number, deltas: IntList): void {
    this.table[row * this.maxColumns + column] = block;
    deltas.push(this.index);
    deltas.push(row);
    deltas.push(column);
    deltas.push(block);
  }

  #setChain(row: number, depth: number, end: number): void {
    this.#depth[row] = depth;
    this.#chainEnd[row] = end;
    this.#chainGeneration[row] = end === rootBlock ? 0 : this.pool.generation(end);
  }

  #chainIsAlive(row: number): boolean {
    const end = this.#chainEnd[row]!;
    if (end === rootBlock) return true;
    return this.pool.isCached(end) && this.pool.generation(end) === this.#chainGeneration[row]!;
  }
}
