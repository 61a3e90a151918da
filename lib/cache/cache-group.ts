// One cache group: layers whose KV lies in the same blocks, with the group's pool, prefix trie and block table.
// Not here: decisions over several groups (kv-cache.ts) and bytes of the device (the executor owns them).
import { invariant } from "../base/invariant.ts";
import { type BlockOps, blockOp } from "./block-ops.ts";
import { BlockPool } from "./block-pool.ts";
import { HostSlots } from "./host-slots.ts";
import type { IntList } from "./int-list.ts";
import { PrefixCache } from "./prefix-cache.ts";
import { RowChains } from "./row-chains.ts";

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

export interface CacheGroupOptions {
  spec: CacheGroupSpec;
  numBlocks: number;
  /** Blocks of host memory for what preempted sequences computed. Default 0: it is lost. */
  numHostSlots?: number;
}

/** What a group keeps of a preempted sequence: host slots of the columns from `first` on. */
export interface HeldColumns {
  first: number;
  slots: Int32Array;
}

/** Rows index the block table [maxRows, maxColumns]; the live columns of a row are [first, columns), below `first` it holds -1. */
export class CacheGroup {
  readonly index: number;
  readonly spec: CacheGroupSpec;
  readonly pool: BlockPool;
  readonly prefix: PrefixCache | undefined;
  readonly host: HostSlots;
  readonly maxColumns: number;
  /** The host's copy of the device's block table. */
  readonly table: Int32Array;
  numPinned = 0;
  readonly #ops: BlockOps;
  readonly #tokensPerBlock: number;
  readonly #columns: Int32Array;
  readonly #first: Int32Array;
  readonly #chains: RowChains | undefined;

  constructor(
    index: number,
    { spec, numBlocks, numHostSlots = 0 }: CacheGroupOptions,
    { maxRows, maxTokens, poison = false }: { maxRows: number; maxTokens: number; poison?: boolean },
    cached: boolean,
    ops: BlockOps,
  ) {
    this.index = index;
    this.spec = spec;
    this.#ops = ops;
    this.#tokensPerBlock = spec.kind === "state" ? maxTokens : spec.tokensPerBlock;
    this.maxColumns = Math.ceil(maxTokens / this.#tokensPerBlock);
    this.pool = new BlockPool(numBlocks);
    if (cached) {
      this.prefix = new PrefixCache(this.pool, spec.tokensPerBlock);
      this.#chains = new RowChains(this.prefix, this.pool, maxRows);
    }
    this.host = new HostSlots(numBlocks, numHostSlots);
    this.pool.onFree = (block) => {
      const slot = this.host.fill(block);
      if (slot >= 0) this.#swap(blockOp.swapOut, block, slot);
      if (poison) ops.push(blockOp.poison, index, block, -1);
    };
    this.table = new Int32Array(maxRows * this.maxColumns).fill(-1);
    this.#columns = new Int32Array(maxRows);
    this.#first = new Int32Array(maxRows);
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

  /**
   * Room for a sequence of `numTokens` that starts with `numFound`: the first `depth` blocks of a matched chain, or more of what
   * `held` has?
   */
  hasRoom(chain: Int32Array, depth: number, numFound: number, numTokens: number, held?: HeldColumns): boolean {
    const first = this.#firstNeeded(numFound);
    const columns = Math.ceil(numFound / this.#tokensPerBlock);
    let allocatable = this.pool.numAllocatable;
    let needed = Math.max(this.blocksFor(numTokens), columns - first);
    for (let column = first; column < columns; column++) {
      const block = this.#blockFound(chain, depth, column, held);
      if (block < 0) continue;
      needed--;
      if (this.pool.isEvictable(block)) allocatable--;
    }
    return needed <= allocatable;
  }

  /** A row that starts with what `hasRoom` found room for; what the device no longer has comes back from the host. */
  open(
    row: number,
    chain: Int32Array,
    depth: number,
    numFound: number,
    held: HeldColumns | undefined,
    deltas: IntList,
  ): void {
    const first = this.#firstNeeded(numFound);
    const columns = Math.ceil(numFound / this.#tokensPerBlock);
    this.#clearColumns(row, first, columns);
    // All that is found is taken first: what is allocated may evict.
    for (let column = first; column < columns; column++) {
      const block = this.#blockFound(chain, depth, column, held);
      if (block < 0) continue;
      this.pool.retain(block);
      this.#set(row, column, block, deltas);
    }
    for (let column = first; column < columns; column++) {
      if (this.table[row * this.maxColumns + column]! >= 0) continue;
      const block = this.pool.allocate();
      this.#swap(blockOp.swapIn, held!.slots[column - held!.first]!, block);
      this.#set(row, column, block, deltas);
    }
    // Where the trie has forgotten more than the window needs, nothing can be added to the chain.
    this.#chains?.start(row, chain, depth, first);
  }

  /** How many columns a row needs to go on after its `numTokens` tokens. */
  columnsToHold(row: number, numTokens: number): number {
    return this.#columns[row]! - this.#firstNeeded(numTokens);
  }

  /** Slots for those columns. */
  hold(row: number, numTokens: number): HeldColumns {
    const first = this.#firstNeeded(numTokens);
    const blocks = this.table.subarray(row * this.maxColumns + first, row * this.maxColumns + this.#columns[row]!);
    return { first, slots: blocks.map((block) => this.host.hold(block)) };
  }

  /** Can a row start with the first `numFound` tokens of the `numTokens` that were held? */
  canResume({ first }: HeldColumns, numFound: number, numTokens: number): boolean {
    return numFound === numTokens || (this.spec.kind !== "state" && first <= this.#firstNeeded(numFound));
  }

  /** Can a row start with the first `numShared` tokens of `source`, which has `numSourceTokens`, and grow to `numTokens`? */
  canFork(source: number, numShared: number, numSourceTokens: number, numTokens: number): boolean {
    // The partial last block is copied sooner or later.
    const first = this.#firstNeeded(numShared);
    const needed = this.blocksFor(numTokens) - Math.max(0, Math.floor(numShared / this.#tokensPerBlock) - first);
    if (needed > this.pool.numAllocatable) return false;
    return this.spec.kind === "state" ? numShared === numSourceTokens : this.#first[source]! <= first;
  }

  /** Shares blocks; the partial last one is copied when either side writes into it. */
  fork(source: number, row: number, numTokens: number, deltas: IntList): void {
    this.#chains?.fork(source, row, numTokens);
    // What the trie has yet to learn is shared even where the window has passed it.
    const first = Math.min(this.#firstNeeded(numTokens), this.#chains?.depth(row) ?? this.maxColumns);
    const columns = Math.ceil(numTokens / this.#tokensPerBlock);
    this.#clearColumns(row, first, columns);
    for (let column = first; column < columns; column++) {
      const block = this.table[source * this.maxColumns + column]!;
      this.pool.retain(block);
      this.#set(row, column, block, deltas);
    }
  }

  /** Lets go of what the window has passed; returns how many of `numNew` tokens after `numTokens` have room. */
  fit(row: number, numTokens: number, numNew: number, deltas: IntList): number {
    this.#releasePassed(row, numTokens, deltas);
    const room = this.pool.numAllocatable - (this.#mustCopy(row, numTokens) ? 1 : 0);
    if (room < 0) return 0;
    return Math.min(numNew, (this.#columns[row]! + room) * this.#tokensPerBlock - numTokens);
  }

  /** Allocates what `fit` found room for. `epoch`: the step being scheduled; it still reads the source of a copy. */
  take(row: number, numTokens: number, numNew: number, epoch: number, deltas: IntList): void {
    if (this.#mustCopy(row, numTokens)) {
      const column = this.#columns[row]! - 1;
      const source = this.table[row * this.maxColumns + column]!;
      const block = this.pool.allocate();
      this.#ops.push(blockOp.copy, this.index, source, block);
      this.#set(row, column, block, deltas);
      this.pool.release(source, epoch);
    }
    const columns = Math.ceil((numTokens + numNew) / this.#tokensPerBlock);
    while (this.#columns[row]! < columns) this.#set(row, this.#columns[row]!++, this.pool.allocate(), deltas);
  }

  /** Offers the blocks that are full by `numComputed` (completed) tokens to the prefix cache. */
  commit(row: number, numComputed: number, tokens: Int32Array, salt: string): void {
    this.#chains?.extend(row, numComputed, tokens, salt, this.table, row * this.maxColumns);
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
    if (this.#chains !== undefined) needed = Math.min(needed, this.#chains.depth(row));
    for (let column = this.#first[row]!; column < needed; column++) {
      this.pool.release(this.table[row * this.maxColumns + column]!);
      this.#set(row, column, -1, deltas);
      this.#first[row] = column + 1;
    }
  }

  /** Do the next tokens go into a block that others see too? */
  #mustCopy(row: number, numTokens: number): boolean {
    if (numTokens === 0 || (this.spec.kind !== "state" && numTokens % this.#tokensPerBlock === 0)) return false;
    const block = this.table[row * this.maxColumns + this.#columns[row]! - 1]!;
    return !this.pool.isWritable(block) || this.host.isHeld(block);
  }

  /** The block on the device that has a column of a sequence to be opened; -1: only the host has it. */
  #blockFound(chain: Int32Array, depth: number, column: number, held: HeldColumns | undefined): number {
    return column < depth ? chain[column]! : this.host.blockOf(held!.slots[column - held!.first]!);
  }

  #swap(op: number, from: number, to: number): void {
    this.#ops.push(op, this.index, from, to);
    this.#ops.swapBytes += this.spec.bytesPerBlock;
  }

  #clearColumns(row: number, first: number, columns: number): void {
    this.#first[row] = first;
    this.#columns[row] = columns;
    this.table.fill(-1, row * this.maxColumns, row * this.maxColumns + columns);
  }

  #set(row: number, column: number, block: number, deltas: IntList): void {
    this.table[row * this.maxColumns + column] = block;
    deltas.push(this.index);
    deltas.push(row);
    deltas.push(column);
    deltas.push(block);
  }
}
