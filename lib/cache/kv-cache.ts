// What the scheduler knows of the KV cache: rows of open sequences over all cache groups, decided and allocated in one call.
// Not here: KV bytes (the executor's) and the public KVCache class (api), which sizes this one and shows its usage.
import { InferxError } from "../base/errors.ts";
import { invariant } from "../base/invariant.ts";
import { checkInt } from "../base/options.ts";
import { BlockPool } from "./block-pool.ts";
import { CacheGroup, type CacheGroupSpec } from "./cache-group.ts";
import { IntList } from "./int-list.ts";

export interface CacheOptions {
  groups: readonly { spec: CacheGroupSpec; numBlocks: number }[];
  /** Rows of the device's block tables: sequences that run at a time. */
  maxRows: number;
  /** The longest sequence, in tokens: the width of the tables. */
  maxTokens: number;
  /** Off for models with recurrent state, whose past cannot be shared block by block. */
  prefixCaching: boolean;
}

export interface CacheGroupUsage {
  numBlocks: number;
  /** Referenced by sequences or pins. */
  usedBlocks: number;
  /** Unreferenced, kept for prefix hits. */
  cachedBlocks: number;
  pinnedBlocks: number;
  bytes: number;
}

export class CacheState {
  readonly groups: readonly CacheGroup[];
  readonly maxTokens: number;
  /** Since the last `beginStep`: (group, row, column, block)*; block -1: no longer read. Apply before the step's forward. */
  readonly deltas = new IntList();
  /** Since the last `beginStep`: (group, source, destination)*; execute in this order, before the step's forward. */
  readonly copies = new IntList();
  readonly #rows: BlockPool;
  readonly #isOpen: Uint8Array;
  readonly #numTokens: Int32Array;
  readonly #salts: string[];
  readonly #chains: Int32Array[];
  readonly #pins = new Map<number, { depth: number; chains: Int32Array[] }>();
  readonly #prefixCaching: boolean;
  #lastPin = 0;
  #step = 0;

  constructor(options: CacheOptions) {
    const maxRows = checkInt("maxRows", options.maxRows, 1);
    this.maxTokens = checkInt("maxTokens", options.maxTokens, 1);
    this.#prefixCaching = options.prefixCaching && options.groups.every(({ spec }) => spec.kind !== "state");
    this.groups = options.groups.map(({ spec, numBlocks }, index) => {
      checkInt("numBlocks", numBlocks, 1, 0x7ffffff0);
      if (spec.kind === "window") checkInt("window", spec.window, 1);
      return new CacheGroup(index, spec, numBlocks, maxRows, this.maxTokens, this.#prefixCaching);
    });
    const widths = new Set(
      options.groups.filter(({ spec }) => spec.kind !== "state").map(({ spec }) => spec.tokensPerBlock),
    );
    invariant(widths.size <= 1, "all paged cache groups have the same tokensPerBlock");
    this.#rows = new BlockPool(maxRows);
    this.#isOpen = new Uint8Array(maxRows);
    this.#numTokens = new Int32Array(maxRows);
    this.#salts = new Array<string>(maxRows).fill("");
    this.#chains = this.groups.map((group) => new Int32Array(group.maxColumns));
  }

  /** Can a sequence of so many tokens ever run to its end, alone, beside `extraPinned` blocks to be pinned? */
  canHold(numTokens: number, extraPinned = 0): boolean {
    return this.groups.every((g) => g.blocksFor(numTokens) + g.numPinned + extraPinned <= g.pool.numBlocks);
  }

  /**
   * Opens a row for a sequence, sharing cached blocks of its first `limit` tokens, if there is room for `numTokens` in all.
   * Returns the row, or -1 without having changed anything. `numTokens(row)` tells how many tokens were found.
   */
  open(tokens: Int32Array, limit: number, salt: string, numTokens: number): number {
    if (!this.hasFreeRow) return -1;
    const depth = this.#match(tokens, limit, salt);
    for (const group of this.groups) if (!group.hasRoom(this.#chains[group.index]!, depth, numTokens)) return -1;
    const row = this.#openRow(depth === 0 ? 0 : depth * this.groups[0]!.spec.tokensPerBlock, salt);
    for (const group of this.groups) group.open(row, this.#chains[group.index]!, depth, this.deltas);
    return row;
  }

  /** Opens a row that shares the first `numTokens` tokens of row `source`; -1 when no row is free or they are gone. */
  fork(source: number, numTokens: number): number {
    const numSourceTokens = this.#numTokens[source]!;
    if (!this.hasFreeRow || numTokens > numSourceTokens) return -1;
    if (!this.groups.every((group) => group.canFork(source, numTokens, numSourceTokens))) return -1;
    const row = this.#openRow(numTokens, this.#salts[source]!);
    for (const group of this.groups) group.fork(source, row, numTokens, this.deltas);
    return row;
  }

  /** Slots for up to `numNew` more tokens, in all groups or in none; returns how many (0: no room). */
  reserve(row: number, numNew: number): number {
    const numTokens = this.#numTokens[row]!;
    let fitting = numNew;
    for (const group of this.groups) fitting = Math.min(fitting, group.fit(row, numTokens, fitting, this.deltas));
    if (fitting <= 0) return 0;
    for (const group of this.groups) group.take(row, numTokens, fitting, this.#step, this.deltas, this.copies);
    this.#numTokens[row]! += fitting;
    return fitting;
  }

  /** Tells that the step which computed the row's tokens up to `numComputed` has completed: full blocks become shareable. */
  commit(row: number, numComputed: number, tokens: Int32Array): void {
    for (const group of this.groups) group.commit(row, numComputed, tokens, this.#salts[row]!);
  }

  /** Gives the row and its blocks back; both wait for the last submitted step. */
  close(row: number): void {
    for (const group of this.groups) group.close(row);
    this.#isOpen[row] = 0;
    this.#rows.release(row);
  }

  /** Tokens of a row that have slots: cached, computed or in flight. */
  numTokens(row: number): number {
    return this.#numTokens[row]!;
  }

  /** Blocks that became allocatable, ever, in all groups: until it grows, a failed `open` fails again. */
  get numReturned(): number {
    let sum = 0;
    for (const { pool } of this.groups) sum += pool.numReturned;
    return sum;
  }

  get hasFreeRow(): boolean {
    return this.#rows.numAllocatable > 0;
  }

  /** Will `reserve` succeed when the steps in flight have completed, without anybody's blocks being taken? */
  get willHaveRoom(): boolean {
    return this.groups.every(({ pool }) => pool.numAllocatable > 0 || pool.numRetired > 0);
  }

  /** Starts the lists of a step; begun again, a step that could not be submitted keeps what is in them. */
  beginStep(step: number): void {
    if (step === this.#step) return;
    this.#step = step;
    this.deltas.clear();
    this.copies.clear();
  }

  submitStep(step: number): void {
    for (const group of this.groups) group.pool.submitEpoch(step);
    this.#rows.submitEpoch(step);
  }

  completeStep(step: number): void {
    for (const group of this.groups) group.pool.completeEpoch(step);
    this.#rows.completeEpoch(step);
  }

  /** Cached blocks that hold the first tokens, as a number of tokens. */
  match(tokens: Int32Array, salt: string): number {
    const depth = this.#match(tokens, tokens.length, salt);
    return depth === 0 ? 0 : depth * this.groups[0]!.spec.tokensPerBlock;
  }

  /** Keeps what is cached of a prefix until `unpin`. Returns the pin's id; IX_KV_EXHAUSTED where `admits` refuses its blocks. */
  pin(tokens: Int32Array, salt: string, admits: (numBlocks: number) => boolean): number {
    const depth = this.#match(tokens, tokens.length, salt);
    if (!admits(depth)) {
      throw new InferxError(
        "IX_KV_EXHAUSTED",
        `pinning ${depth} blocks would leave too few for the requests accepted`,
        { depth },
      );
    }
    const chains = this.groups.map((group) => this.#chains[group.index]!.slice(0, depth));
    for (const group of this.groups) {
      for (const block of chains[group.index]!) group.pool.retain(block);
      group.numPinned += depth;
    }
    this.#pins.set(++this.#lastPin, { depth, chains });
    return this.#lastPin;
  }

  unpin(id: number): boolean {
    const pin = this.#pins.get(id);
    if (pin === undefined) return false;
    this.#pins.delete(id);
    for (const group of this.groups) {
      for (const block of pin.chains[group.index]!.reverse()) group.pool.release(block);
      group.numPinned -= pin.depth;
    }
    return true;
  }

  /** Forgets all cached prefixes and pins; running sequences keep their blocks. */
  clear(): void {
    for (const id of [...this.#pins.keys()]) this.unpin(id);
    for (const group of this.groups) group.prefix?.clear();
  }

  usage(): CacheGroupUsage[] {
    return this.groups.map(({ pool, spec, numPinned }) => ({
      numBlocks: pool.numBlocks,
      usedBlocks: pool.numUsed,
      cachedBlocks: pool.numEvictable,
      pinnedBlocks: numPinned,
      bytes: pool.numBlocks * spec.bytesPerBlock,
    }));
  }

  /** Pools, tables, pins and tries against each other. O(blocks + rows * columns). Throws IX_INTERNAL. */
  checkIntegrity(): void {
    for (const group of this.groups) {
      const owned = new Int32Array(group.pool.numBlocks);
      this.#isOpen.forEach((open, row) => {
        if (open === 1) group.countReferences(row, this.#numTokens[row]!, owned);
      });
      for (const pin of this.#pins.values()) for (const block of pin.chains[group.index]!) owned[block]!++;
      group.pool.checkIntegrity(owned);
      group.prefix?.checkIntegrity();
    }
    this.#rows.checkIntegrity(Int32Array.from(this.#isOpen));
  }

  /** Fills the scratch chains; the depth that all groups can serve. */
  #match(tokens: Int32Array, limit: number, salt: string): number {
    if (!this.#prefixCaching) return 0;
    let depth = Number.POSITIVE_INFINITY;
    for (const group of this.groups) {
      const chain = this.#chains[group.index]!;
      const longest = Math.min(depth, chain.length, Math.floor(limit / group.spec.tokensPerBlock));
      depth = group.prefix!.match(tokens, salt, chain, longest);
    }
    return depth;
  }

  #openRow(numTokens: number, salt: string): number {
    const row = this.#rows.allocate();
    this.#isOpen[row] = 1;
    this.#numTokens[row] = numTokens;
    this.#salts[row] = salt;
    return row;
  }
}
