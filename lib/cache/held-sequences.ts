// What is kept of preempted sequences in all cache groups until they go on or end. Not here: opening them again (kv-cache.ts).
import type { CacheGroup, HeldColumns } from "./cache-group.ts";

export interface HeldSequence {
  readonly numTokens: number;
  readonly groups: readonly HeldColumns[];
}

export class HeldSequences {
  readonly #groups: readonly CacheGroup[];
  readonly #held = new Set<HeldSequence>();

  constructor(groups: readonly CacheGroup[]) {
    this.#groups = groups;
  }

  /** Bytes that go to the host if somebody takes all the blocks of a row of so many tokens. */
  bytesOf(row: number, numTokens: number): number {
    return this.#groups.reduce((sum, g) => sum + g.columnsToHold(row, numTokens) * g.spec.bytesPerBlock, 0);
  }

  /** undefined: too few host slots. */
  hold(row: number, numTokens: number): HeldSequence | undefined {
    if (this.#groups.some((group) => group.columnsToHold(row, numTokens) > group.host.numFree)) return undefined;
    const held = { numTokens, groups: this.#groups.map((group) => group.hold(row, numTokens)) };
    this.#held.add(held);
    return held;
  }

  drop(held: HeldSequence): void {
    this.#held.delete(held);
    for (const { index, host } of this.#groups) for (const slot of held.groups[index]!.slots) host.release(slot);
  }

  /** Every slot has as many owners as sequences hold it. Throws IX_INTERNAL. */
  checkIntegrity(): void {
    for (const { index, host, pool } of this.#groups) {
      const owned = new Int32Array(host.numSlots);
      for (const held of this.#held) for (const slot of held.groups[index]!.slots) owned[slot]!++;
      host.checkIntegrity(owned, (block) => pool.isFree(block));
    }
  }
}
