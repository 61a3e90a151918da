// Sequences without a row: new ones and preempted ones; who is next, and whether there is room for it.
// Not here: who gets how many tokens of a step (scheduler.ts).
import { InferxError } from "../base/errors.ts";
import type { CacheState } from "../cache/kv-cache.ts";
import type { Policy } from "./policies/index.ts";
import type { Sequence } from "./sequence.ts";

/** Room that a sequence must find beyond its known tokens, lest it be preempted as soon as it runs. */
const headroomTokens = 32;

export class WaitingQueue {
  readonly #cache: CacheState;
  readonly #policy: Policy;
  readonly #maxQueued: number;
  readonly #sequences: Sequence[] = [];
  // The one that found no room, and how many blocks had been returned until then: no use in asking again before there are more.
  #refused: { sequence: Sequence; numReturned: number } | undefined;

  constructor(cache: CacheState, policy: Policy, maxQueued: number) {
    this.#cache = cache;
    this.#policy = policy;
    this.#maxQueued = maxQueued;
  }

  get length(): number {
    return this.#sequences.length;
  }

  /** A new sequence. IX_CONTEXT_OVERFLOW, IX_KV_EXHAUSTED: it can never run; IX_QUEUE_FULL: not now. */
  accept(sequence: Sequence): void {
    const { numToHold, promptLength, maxNewTokens } = sequence;
    const { maxTokens } = this.#cache;
    const details = { promptLength, maxNewTokens, maxTokens };
    if (numToHold > maxTokens) {
      throw new InferxError("IX_CONTEXT_OVERFLOW", `${numToHold} tokens exceed the context of ${maxTokens}`, details);
    }
    if (!this.#cache.canHold(numToHold)) {
      throw new InferxError("IX_KV_EXHAUSTED", `${numToHold} tokens never fit into the cache's blocks`, details);
    }
    if (this.length >= this.#maxQueued) {
      throw new InferxError("IX_QUEUE_FULL", `${this.length} requests are waiting`, { maxQueued: this.#maxQueued });
    }
    this.push(sequence);
  }

  push(sequence: Sequence): void {
    this.#sequences.push(sequence);
  }

  /** The one that found no room, if none has come back since. */
  get refused(): Sequence | undefined {
    return this.#refused?.numReturned === this.#cache.numReturned ? this.#refused.sequence : undefined;
  }

  remove(sequence: Sequence): void {
    if (sequence === this.#refused?.sequence) this.#refused = undefined;
    this.#sequences.splice(this.#sequences.indexOf(sequence), 1);
  }

  /**
   * The first by policy, if it can be opened: it is never passed by, even where a later one would fit. Only forks that wait
   * for their source are skipped. A preempted sequence is not opened before the tokens that steps in flight sampled are known.
   */
  next(step: number): Sequence | undefined {
    let first: Sequence | undefined;
    for (const sequence of this.#sequences) {
      if (first !== undefined && this.#policy.order(sequence, first) > 0) continue;
      if (!awaitsSource(sequence, step)) first = sequence;
    }
    return first !== undefined && first.numPending === 0 ? first : undefined;
  }

  /** From waiting to running, if there is a row and room for all that is known and a little more. */
  open(sequence: Sequence): boolean {
    if (sequence === this.refused) return false;
    const { numReturned } = this.#cache;
    this.#refused = undefined;
    const { forkSource, forkLength, tokens, held } = sequence;
    const numTokens = Math.min(sequence.numKnown + headroomTokens, sequence.numToHold);
    const forks =
      forkSource?.state === "running" &&
      forkLength > this.#cache.match(tokens.subarray(0, sequence.numShareable), sequence.salt);
    let row = forks ? this.#cache.fork(forkSource.row, forkLength, numTokens) : -1;
    if (row < 0) row = this.#cache.open(tokens, sequence.numShareable, sequence.salt, numTokens, held);
    if (row < 0) {
      this.#refused = { sequence, numReturned };
      return false;
    }
    sequence.start(row, this.#cache.numTokens(row));
    this.remove(sequence);
    return true;
  }
}

/** A fork waits while its source, running, has yet to compute what they share (by steps before this one). */
function awaitsSource({ forkSource, forkLength }: Sequence, step: number): boolean {
  if (forkSource?.state !== "running") return false;
  return (forkSource.lastStep === step ? forkSource.lastFirstPosition : forkSource.numScheduled) < forkLength;
}
