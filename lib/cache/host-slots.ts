// Places in host memory for the blocks of preempted sequences, one list for each cache group. A held block stays on the device as
// long as nobody takes it; only then is it copied to its slot. Not here: bytes (the executor's) and what a sequence holds (kv-cache.ts).
import { invariant } from "../base/invariant.ts";

/**
 * A slot is free, or has owners (images of preempted sequences, several where they shared the block) and is waiting for its block or
 * filled with what that held. All copies run in stream order, so a slot can be used again at once.
 */
export class HostSlots {
  readonly numSlots: number;
  readonly #free: number[];
  readonly #refs: Int32Array;
  readonly #blockOf: Int32Array; // -1: filled, or free
  readonly #slotOf: Int32Array; // -1: the block is not held

  constructor(numBlocks: number, numSlots: number) {
    this.numSlots = numSlots;
    this.#free = Array.from({ length: numSlots }, (_, i) => numSlots - 1 - i);
    this.#refs = new Int32Array(numSlots);
    this.#blockOf = new Int32Array(numSlots).fill(-1);
    this.#slotOf = new Int32Array(numBlocks).fill(-1);
  }

  get numFree(): number {
    return this.#free.length;
  }

  /** The slot for what the block holds now; one more owner of it. */
  hold(block: number): number {
    let slot = this.#slotOf[block]!;
    if (slot < 0) {
      invariant(this.#free.length > 0, "a host slot is free");
      slot = this.#free.pop()!;
      this.#slotOf[block] = slot;
      this.#blockOf[slot] = block;
    }
    this.#refs[slot]!++;
    return slot;
  }

  /** One owner less. */
  release(slot: number): void {
    invariant(this.#refs[slot]! > 0, `release of host slot ${slot}, which nobody holds`);
    if (--this.#refs[slot]! > 0) return;
    const block = this.#blockOf[slot]!;
    if (block >= 0) this.#slotOf[block] = this.#blockOf[slot] = -1;
    this.#free.push(slot);
  }

  /** Somebody counts on what the block holds: nobody may write into it. */
  isHeld(block: number): boolean {
    return this.#slotOf[block]! >= 0;
  }

  /** The block that still has what belongs into the slot; -1: the slot has it. */
  blockOf(slot: number): number {
    return this.#blockOf[slot]!;
  }

  /** The block is about to lose what it holds: the slot that gets it, or -1. */
  fill(block: number): number {
    const slot = this.#slotOf[block]!;
    if (slot >= 0) this.#slotOf[block] = this.#blockOf[slot] = -1;
    return slot;
  }

  /** Compares with the references counted by the owner: `owned` [numSlots]; no held block may be free. Throws IX_INTERNAL. */
  checkIntegrity(owned: Int32Array, isFree: (block: number) => boolean): void {
    const free = new Set(this.#free);
    invariant(free.size === this.#free.length, "a host slot is free twice");
    for (let slot = 0; slot < this.numSlots; slot++) {
      invariant(
        this.#refs[slot] === owned[slot],
        `host slot ${slot}: ${this.#refs[slot]} references, ${owned[slot]} held`,
      );
      invariant(
        free.has(slot) === (owned[slot] === 0),
        `host slot ${slot} with ${owned[slot]} owners is in a wrong list`,
      );
      const block = this.#blockOf[slot]!;
      const waits = block < 0 || (this.#slotOf[block] === slot && owned[slot]! > 0 && !isFree(block));
      invariant(waits, `host slot ${slot} waits for block ${block}`);
    }
    const waiting = this.#blockOf.reduce((count, block) => count + (block >= 0 ? 1 : 0), 0);
    const held = this.#slotOf.reduce((count, slot) => count + (slot >= 0 ? 1 : 0), 0);
    invariant(waiting === held, `${held} blocks are held, ${waiting} host slots wait for one`);
  }
}
