// What random requests ask for, drawn from a seed. Not here: when they arrive and what becomes of them (random-steps.test.ts).
import type { GenerateOptions } from "../../lib/index.ts";

export class Random {
  #state: number;
  constructor(seed: number) {
    this.#state = seed;
  }
  /** In [0, 1): mulberry32. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let t = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  }
  int(from: number, to: number): number {
    return from + Math.floor(this.next() * (to - from + 1));
  }
  chance(share: number): boolean {
    return this.next() < share;
  }
  pick<T>(values: readonly T[]): T {
    return values[this.int(0, values.length - 1)]!;
  }
}

export interface Wish {
  prompt: number[];
  options: GenerateOptions;
}

/** Requests that come again and again: some alike in their beginnings, some the same. */
export function wishes(random: Random, vocabulary: number, hasText: boolean): Wish[] {
  const token = () => random.int(0, vocabulary - 1);
  const tokens = (count: number) => Array.from({ length: count }, token);
  const beginnings = Array.from({ length: 4 }, () => tokens(120));
  return Array.from({ length: 60 }, (): Wish => {
    const prompt = [...random.pick(beginnings).slice(0, random.int(0, 120)), ...tokens(random.int(1, 8))];
    const some = (share: number, options: () => GenerateOptions) => (random.chance(share) ? options() : {});
    const options: GenerateOptions = {
      maxTokens: random.chance(0.05) ? 0 : random.chance(0.4) ? random.int(60, 120) : random.int(1, 60),
      ignoreEos: random.chance(0.7),
      ...some(0.3, () => ({ priority: random.int(-2, 2) })),
      ...some(0.2, () => ({ tenant: random.pick(["a", "b"]) })),
      ...some(0.3, () => ({ stopTokens: tokens(vocabulary >> 7) })),
      ...some(hasText ? 0.2 : 0, () => ({ stop: [random.pick(["e", " the", ".", "ing"])] })),
      ...some(0.3, () => ({ logprobs: random.pick([0, 1, 5, 20]) })),
      ...some(0.15, () => ({ promptLogprobs: random.pick([0, 3]) })),
      ...some(0.2, () => ({ repetitionPenalty: random.pick([0.8, 1.3]) })),
      ...some(0.2, () => ({ frequencyPenalty: 0.5, presencePenalty: random.pick([0, 0.4]) })),
      ...some(0.15, () => ({ logitBias: { [token()]: 3, [token()]: Number.NEGATIVE_INFINITY } })),
      ...some(0.25, () => ({
        temperature: random.pick([0.5, 1.2]),
        seed: random.int(0, 1e9),
        topK: random.pick([0, 30]),
      })),
      ...some(0.1, () => ({ topP: 0.9, minP: 0.02 })),
    };
    return { prompt, options };
  });
}
