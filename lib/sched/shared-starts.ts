// Which sequence alive was the first to begin with a block of tokens: later ones of the same beginning wait for what it computes
// instead of computing it beside it. Not here: what is computed already (the prefix cache) and the sharing itself (forks).
import type { Sequence } from "./sequence.ts";

export class SharedStarts {
  readonly #numTokens: number;
  readonly #firsts = new Map<number, Sequence>();

  /** `numTokens`: of a beginning; infinite where nothing is to be shared. */
  constructor(numTokens: number) {
    this.#numTokens = numTokens;
  }

  /** An older sequence with the same beginning, or one whose hash is the same. */
  join(sequence: Sequence): Sequence | undefined {
    if (sequence.promptLength <= this.#numTokens) return undefined;
    const key = this.#keyOf(sequence);
    const first = this.#firsts.get(key);
    if (first === undefined) this.#firsts.set(key, sequence);
    return first;
  }

  leave(sequence: Sequence): void {
    const key = this.#keyOf(sequence);
    if (this.#firsts.get(key) === sequence) this.#firsts.delete(key);
  }

  /** FNV-1a; whoever shares compares tokens and salts. */
  #keyOf({ tokens, promptLength, salt }: Sequence): number {
    if (promptLength <= this.#numTokens) return -1;
    let hash = 0x811c9dc5;
    const add = (value: number) => {
      hash = Math.imul(hash ^ value, 0x01000193);
    };
    for (let i = 0; i < salt.length; i++) add(salt.charCodeAt(i));
    for (let i = 0; i < this.#numTokens; i++) add(tokens[i]!);
    return hash >>> 0;
  }
}
