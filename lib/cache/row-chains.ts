// How far the trie of a cache group knows the rows' blocks, and how they become known. Not here: the trie (prefix-cache.ts) and the
// blocks that a row holds (cache-group.ts), which may be others than the trie's with the same content.
import type { BlockPool } from "./block-pool.ts";
import { type PrefixCache, rootBlock } from "./prefix-cache.ts";

/** The chain of a row can no longer grow: a block that it would continue was evicted. */
const deadChain = 0x7fffffff;

export class RowChains {
  readonly #prefix: PrefixCache;
  readonly #pool: BlockPool;
  // How many of a row's blocks are known to the trie (under their own id or an equal block's), and the last such node.
  readonly #depth: Int32Array;
  readonly #end: Int32Array;
  readonly #generation: Uint32Array;

  constructor(prefix: PrefixCache, pool: BlockPool, maxRows: number) {
    this.#prefix = prefix;
    this.#pool = pool;
    this.#depth = new Int32Array(maxRows);
    this.#end = new Int32Array(maxRows);
    this.#generation = new Uint32Array(maxRows);
  }

  /** The row's column that the trie has yet to learn; far behind the last one where it cannot learn any more. */
  depth(row: number): number {
    return this.#depth[row]!;
  }

  /** A row that begins with `depth` nodes of `chain` and holds its columns from `first` on. */
  start(row: number, chain: Int32Array, depth: number, first: number): void {
    this.#set(row, first > depth ? deadChain : depth, depth === 0 ? rootBlock : chain[depth - 1]!);
  }

  /** The row shares the first `numTokens` tokens of `source`. */
  fork(source: number, row: number, numTokens: number): void {
    let depth = this.#depth[source]!;
    let end = this.#end[source]!;
    if (depth === deadChain || !this.#isAlive(source)) depth = deadChain;
    else for (; depth * this.#prefix.tokensPerBlock > numTokens; depth--) end = this.#prefix.parentOf(end);
    this.#set(row, depth, end);
  }

  /** Offers the blocks that are full by `numComputed` tokens to the trie; the row's columns stand at `start` in `table`. */
  extend(row: number, numComputed: number, tokens: Int32Array, salt: string, table: Int32Array, start: number): void {
    const { tokensPerBlock } = this.#prefix;
    for (let depth = this.#depth[row]!; (depth + 1) * tokensPerBlock <= numComputed; depth++) {
      if (!this.#isAlive(row)) {
        this.#depth[row] = deadChain;
        return;
      }
      const parent = this.#end[row]!;
      const offset = depth * tokensPerBlock;
      let block = this.#prefix.find(parent, salt, tokens, offset);
      if (block < 0) {
        block = table[start + depth]!;
        this.#prefix.insert(block, parent, salt, tokens, offset);
      }
      this.#set(row, depth + 1, block);
    }
  }

  #set(row: number, depth: number, end: number): void {
    this.#depth[row] = depth;
    this.#end[row] = end;
    this.#generation[row] = end === rootBlock ? 0 : this.#pool.generation(end);
  }

  #isAlive(row: number): boolean {
    const end = this.#end[row]!;
    if (end === rootBlock) return true;
    return this.#pool.isCached(end) && this.#pool.generation(end) === this.#generation[row]!;
  }
}
