// What a step does to whole blocks before its forward, in this order: copies, moves to and from host slots, poison.
// Entries may be made between steps, too: they belong to the next one. Not here: the device, which follows them in stream order.
import { IntList } from "./int-list.ts";

/** csrc/core/row_state.h, Command */
export const blockOp = { copy: 2, poison: 7, swapOut: 8, swapIn: 9 } as const;

export class BlockOps {
  /** Bytes moved between device and host by the entries that no step has taken yet. */
  swapBytes = 0;
  readonly #list = new IntList();
  #numTaken = 0;

  /** `from` and `to` are blocks; in a swap one of them is a host slot, and poison has no `to` (-1). */
  push(op: number, group: number, from: number, to: number): void {
    this.#list.push(op);
    this.#list.push(group);
    this.#list.push(from);
    this.#list.push(to);
  }

  /** (op, group, from, to)* that no step has taken; valid until `begin`. */
  view(): Int32Array {
    return this.#list.view().subarray(this.#numTaken);
  }

  /** A step takes the entries made so far. */
  take(): void {
    this.#numTaken = this.#list.length;
    this.swapBytes = 0;
  }

  /** What was taken has been sent. */
  begin(): void {
    this.#list.drop(this.#numTaken);
    this.#numTaken = 0;
  }
}
