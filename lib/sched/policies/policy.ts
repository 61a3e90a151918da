// What a scheduling policy is: two pure functions over sequences. Not here: admission, budgets, blocks.
import type { Sequence } from "../sequence.ts";

export interface Policy {
  readonly name: string;
  /** Negative: `a` goes first, among the waiting and among the running. Total: ends with the arrival. */
  order(a: Sequence, b: Sequence): number;
  /** Who gives its blocks back (and is computed again later) when the pool is empty. Never the one that goes first of several. */
  victim(running: readonly Sequence[]): Sequence;
  /** May a sequence that found no room to start take the row and the blocks of a running one? Default: never. Never both ways round. */
  overtakes?(waiting: Sequence, running: Sequence): boolean;
}

/** The one that goes last. */
export function lastOf(sequences: readonly Sequence[], order: Policy["order"]): Sequence {
  return sequences.reduce((last, sequence) => (order(sequence, last) > 0 ? sequence : last));
}

/** Sorts in place by insertion: the order hardly changes from step to step. */
export function sortNearlySorted(sequences: Sequence[], order: Policy["order"]): void {
  for (let i = 1; i < sequences.length; i++) {
    const sequence = sequences[i]!;
    let j = i - 1;
    for (; j >= 0 && order(sequences[j]!, sequence) > 0; j--) sequences[j + 1] = sequences[j]!;
    sequences[j + 1] = sequence;
  }
}
