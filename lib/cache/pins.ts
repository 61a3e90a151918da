// Prefixes that stay in the cache until they are taken off: one reference for each of their blocks. Not here: who may pin how much.
import type { CacheGroup } from "./cache-group.ts";

export class Pins {
  readonly #groups: readonly CacheGroup[];
  readonly #pins = new Map<number, Int32Array[]>();
  #last = 0;

  constructor(groups: readonly CacheGroup[]) {
    this.#groups = groups;
  }

  /** `chains`: blocks by group. Returns the pin's id. */
  add(chains: Int32Array[]): number {
    for (const group of this.#groups) {
      for (const block of chains[group.index]!) group.pool.retain(block);
      group.numPinned += chains[group.index]!.length;
    }
    this.#pins.set(++this.#last, chains);
    return this.#last;
  }

  /** False: there is no such pin. */
  remove(id: number): boolean {
    const chains = this.#pins.get(id);
    if (chains === undefined) return false;
    this.#pins.delete(id);
    for (const group of this.#groups) {
      const chain = chains[group.index]!;
      for (const block of chain.reverse()) group.pool.release(block);
      group.numPinned -= chain.length;
    }
    return true;
  }

  clear(): void {
    for (const id of [...this.#pins.keys()]) this.remove(id);
  }

  /** `owned` [numBlocks] of a group gets the references of its pins added. */
  countReferences(group: number, owned: Int32Array): void {
    for (const chains of this.#pins.values()) for (const block of chains[group]!) owned[block]!++;
  }
}
