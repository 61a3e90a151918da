// What the scheduler knows of the KV cache: rows of open sequences over all cache groups, decided and allocated in one call.
// Not here: KV bytes (the executor's) and the public KVCache class (api), which sizes this one and shows its usage.
import { InferxError } from "../base/errors.ts";
import { invariant } from "../base/invariant.ts";
import { checkInt } from "../base/options.ts";
import { BlockOps } from "./block-ops.ts";
import { BlockPool } from "./block-pool.ts";
import { CacheGroup, type CacheGroupOptions, type HeldColumns } from "./cache-group.ts";
import { type HeldSequence, HeldSequences } from "./held-sequences.ts";
import { IntList } from "./int-list.ts";
import { Pins } from "./pins.ts";

export interface CacheOptions {
  groups: readonly CacheGroupOptions[];
  /** Rows of the device's block tables: sequences that run at a time. */
  maxRows: number;
  /** The longest sequence, in tokens: the width of the tables. */
  maxTokens: number;
  /** Off for models with recurrent state, whose past cannot be shared block by block. */
  prefixCaching: boolean;
  /** Fill each block with NaN when its content is given up. Default false. */
  poison?: boolean;
}

export interface CacheGroupUsage {
  numBlocks: number;
  /** Referenced by sequences or pins. */
  usedBlocks: number;
  /** Unreferenced, kept for prefix hits. */
  cachedBlocks: number;
  pinnedBlocks: number;
  bytes: number;
  /** Blocks of host memory, and how many of them are taken by preempted sequences. */
  hostSlots: number;
  usedHostSlots: number;
}

export class CacheState {
  readonly groups: readonly CacheGroup[];
  readonly maxTokens: number;
  /** Since the last `beginStep`: (group, row, column, block)*; block -1: no longer read. Apply before the step's forward. */
  readonly deltas = new IntList();
  /** Of whole blocks; execute in order, before the step's forward. */
  readonly ops = new BlockOps();
  readonly #rows: BlockPool;
  readonly #isOpen: Uint8Array;
  readonly #numTokens: Int32Array;
  readonly #salts: string[];
  readonly #chains: Int32Array[];
  readonly #held: HeldSequences;
  readonly #pins: Pins;
  readonly #prefixCaching: boolean;
  #step = 0;

  constructor(options: CacheOptions) {
    const maxRows = checkInt("maxRows", options.maxRows, 1);
    this.maxTokens = checkInt("maxTokens", options.maxTokens, 1);
    this.#prefixCaching = options.prefixCaching && options.groups.every(({ spec }) => spec.kind !== "state");
    this.groups = options.groups.map((group, index) => {
      checkInt("numBlocks", group.numBlocks, 1, 0x7ffffff0);
      checkInt("numHostSlots", group.numHostSlots ?? 0, 0, 0x7ffffff0);
      if (group.spec.kind === "window") checkInt("window", group.spec.window, 1);
      return new CacheGroup(index, group, options, this.#prefixCaching, this.ops);
    });
    const widths = new Set(
      options.groups.filter(({ spec }) => spec.kind !== "state").map(({ spec }) => spec.tokensPerBlock),
    );
    invariant(widths.size <= 1, "all paged cache groups have the same tokensPerBlock");
    this.#held = new HeldSequences(this.groups);
    this.#pins = new Pins(this.groups);
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
   * Opens a row for a sequence, sharing cached blocks of its first `limit` tokens and going on with what `held` has, if there is
   * room for `numTokens` in all; `held` is then dropped. Returns the row, or -1 without having changed anything. `numTokens(row)`
   * tells how many tokens were found.
   */
  open(tokens: Int32Array, limit: number, salt: string, numTokens: number, held?: HeldSequence): number {
    if (!this.hasFreeRow) return -1;
    const depth = this.#match(tokens, limit, salt);
    let numFound = depth === 0 ? 0 : depth * this.groups[0]!.spec.tokensPerBlock;
    const columns = (group: CacheGroup): HeldColumns | undefined => held?.groups[group.index];
    if (held !== undefined) {
      const numHeld = Math.min(held.numTokens, limit);
      const resumes = this.groups.every((group) => group.canResume(columns(group)!, numHeld, held.numTokens));
      if (resumes) numFound = Math.max(numFound, numHeld);
    }
    for (const group of this.groups) {
      if (!group.hasRoom(this.#chains[group.index]!, depth, numFound, numTokens, columns(group))) return -1;
    }
    const row = this.#openRow(numFound, salt);
    for (const group of this.groups) {
      group.open(row, this.#chains[group.index]!, depth, numFound, columns(group), this.deltas);
    }
    if (held !== undefined) this.drop(held);
    return row;
  }

  /**
   * Opens a row that shares the first `numShared` tokens of row `source`; -1 when no row is free, they are gone or there is no room for
   * `numTokens` in all.
   */
  fork(source: number, numShared: number, numTokens: number): number {
    const numSourceTokens = this.#numTokens[source]!;
    if (!this.hasFreeRow || numShared > numSourceTokens) return -1;
    if (!this.groups.every((group) => group.canFork(source, numShared, numSourceTokens, numTokens))) return -1;
    const row = this.#openRow(numShared, this.#salts[source]!);
    for (const group of this.groups) group.fork(source, row, numShared, this.deltas);
    return row;
  }

  /** Slots for up to `numNew` more tokens, in all groups or in none; returns how many (0: no room). */
  reserve(row: number, numNew: number): number {
    const numTokens = this.#numTokens[row]!;
    let fitting = numNew;
    for (const group of this.groups) fitting = Math.min(fitting, group.fit(row, numTokens, fitting, this.deltas));
    if (fitting <= 0) return 0;
    for (const group of this.groups) group.take(row, numTokens, fitting, this.#step, this.deltas);
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

  /**
   * Keeps what is in a row that is about to be closed: on the device as long as nobody takes the blocks, then on the host; undefined
   * where that has too few slots.
   */
  hold(row: number): HeldSequence | undefined {
    return this.#held.hold(row, this.#numTokens[row]!);
  }

  /** Bytes that `hold` moves to the host if somebody takes all the blocks. */
  bytesToHold(row: number): number {
    return this.#held.bytesOf(row, this.#numTokens[row]!);
  }

  /** Forgets what was held. */
  drop(held: HeldSequence): void {
    this.#held.drop(held);
  }

  /** Tokens of a row that have slots: cached, computed or in flight. */
  numTokens(row: number): number {
    return this.#numTokens[row]!;
  }

  /** Tokens that the prefix cache shares at a time; infinite where there is none. */
  get sharedTokens(): number {
    return this.#prefixCaching ? this.groups[0]!.spec.tokensPerBlock : Number.POSITIVE_INFINITY;
  }

  /** Rows, and blocks in all groups, that became allocatable, ever: until it grows, a failed `open` fails again. */
  get numReturned(): number {
    let sum = this.#rows.numReturned;
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
    this.ops.begin();
  }

  submitStep(step: number): void {
    this.ops.take();
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
    return this.#pins.add(this.#chains.map((chain) => chain.slice(0, depth)));
  }

  unpin(id: number): boolean {
    return this.#pins.remove(id);
  }

  /** Forgets all cached prefixes and pins; running sequences keep their blocks. */
  clear(): void {
    this.#pins.clear();
    for (const group of this.groups) group.prefix?.clear();
  }

  usage(): CacheGroupUsage[] {
    return this.groups.map(({ pool, spec, numPinned, host }) => ({
      numBlocks: pool.numBlocks,
      usedBlocks: pool.numUsed,
      cachedBlocks: pool.numEvictable,
      pinnedBlocks: numPinned,
      bytes: pool.numBlocks * spec.bytesPerBlock,
      hostSlots: host.numSlots,
      usedHostSlots: host.numSlots - host.numFree,
    }));
  }

  /** Pools, tables, pins, host slots and tries against each other. O(blocks + rows * columns). Throws IX_INTERNAL. */
  checkIntegrity(): void {
    for (const group of this.groups) {
      const owned = new Int32Array(group.pool.numBlocks);
      this.#isOpen.forEach((open, row) => {
        if (open === 1) group.countReferences(row, this.#numTokens[row]!, owned);
      });
      this.#pins.countReferences(group.index, owned);
      group.pool.checkIntegrity(owned);
      group.prefix?.checkIntegrity();
    }
    this.#held.checkIntegrity();
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
