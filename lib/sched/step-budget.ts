// How many tokens fit into a step of so many milliseconds: a running estimate of
// t = fixed + perToken * T + perContext * C + perByte * bytes moved between device and host.
// Not here: who gets the tokens (scheduler.ts).

/** The weight of a step's measurement halves after about 34 newer ones: machines throttle and neighbours come and go. */
const decay = 0.98;
/** No step has more than this many times the tokens of the largest one measured: an estimate is not extrapolated blindly. */
const growth = 4;
const firstStepTokens = 16;
// The unit of a feature says how much of a surprise it takes: at first time is put down to tokens rather than to fixed cost,
// since steps then come out short and the next ones tell more.
const tokenUnit = 8;
const contextUnit = 8192;
const swapUnit = 1 << 24;
/** Assumed where no step with swaps was measured lately, so that they are tried again: what 16 lanes of PCIe 4.0 move. */
const swapBytesPerMs = 24e6;
const ridge = 0.02;
const numFeatures = 4;

/** Exponentially weighted least squares, held near the last estimate (for swaps near the assumption) where steps look all alike. */
export class StepBudget {
  readonly targetMs: number;
  #estimate: [number, number, number, number];
  readonly #moments = new Float64Array(numFeatures * numFeatures);
  readonly #projections = new Float64Array(numFeatures);
  #numObserved = 0;
  #largestTokens = firstStepTokens / growth;

  constructor(targetMs: number) {
    this.targetMs = targetMs;
    this.#estimate = [0, (targetMs * tokenUnit) / 64, 0, swapUnit / swapBytesPerMs];
  }

  /** For steps mixed with prompts: the target, but where fixed costs (reading weights) are high at least half of a step does work. */
  get limitMs(): number {
    return Math.max(this.targetMs, 2 * this.#estimate[0]);
  }

  predictMs(numTokens: number, contextTokens: number): number {
    const [fixed, perToken, perContext] = this.#estimate;
    return fixed + (perToken * numTokens) / tokenUnit + (perContext * contextTokens) / contextUnit;
  }

  swapMs(bytes: number): number {
    return (this.#estimate[3] * bytes) / swapUnit;
  }

  /** Is a preempted sequence moved to the host and back sooner than it is computed again, in steps that others need anyway? */
  swapPays(bytes: number, numTokens: number): boolean {
    const computingMs = this.predictMs(numTokens, (numTokens * (numTokens + 1)) / 2) - this.#estimate[0];
    return 2 * this.swapMs(bytes) < computingMs;
  }

  /** How many tokens from `position` on can join a step of `numTokens` tokens before it takes `untilMs`? May be negative. */
  tokensUntil(untilMs: number, numTokens: number, contextTokens: number, position: number): number {
    const remaining = untilMs - this.predictMs(numTokens, contextTokens);
    const square = this.#estimate[2] / contextUnit / 2;
    const linear = this.#estimate[1] / tokenUnit + 2 * square * (position + 0.5);
    // The root of square * n^2 + linear * n = remaining, in the form that survives square = 0.
    const root = Math.sqrt(Math.max(0, linear * linear + 4 * square * remaining));
    const fitting = linear + root === 0 ? Number.POSITIVE_INFINITY : (2 * remaining) / (linear + root);
    return Math.floor(Math.min(fitting, growth * this.#largestTokens - numTokens));
  }

  /** A measured step. */
  observe(numTokens: number, contextTokens: number, elapsedMs: number, swapBytes = 0): void {
    const features = [1, numTokens / tokenUnit, contextTokens / contextUnit, swapBytes / swapUnit];
    // A hiccup of the machine is no news about the model, once there is a model.
    const predictedMs = this.predictMs(numTokens, contextTokens) + this.swapMs(swapBytes);
    const plausibleMs = 4 * Math.max(this.targetMs, predictedMs);
    const ms = this.#numObserved++ < 8 ? elapsedMs : Math.min(elapsedMs, plausibleMs);
    for (let i = 0; i < numFeatures; i++) {
      for (let j = 0; j < numFeatures; j++) {
        const k = numFeatures * i + j;
        this.#moments[k] = decay * this.#moments[k]! + features[i]! * features[j]!;
      }
      this.#projections[i] = decay * this.#projections[i]! + features[i]! * ms;
    }
    this.#largestTokens = Math.max(this.#largestTokens, numTokens);
    // Coordinate descent keeps the coefficients non-negative; they start from the last estimate, which is near.
    const previous = [...this.#estimate.slice(0, 3), swapUnit / swapBytesPerMs];
    for (let sweep = 0; sweep < 100; sweep++) {
      for (let i = 0; i < numFeatures; i++) {
        let rest = this.#projections[i]! + ridge * previous[i]!;
        for (let j = 0; j < numFeatures; j++) {
          if (j !== i) rest -= this.#moments[numFeatures * i + j]! * this.#estimate[j]!;
        }
        this.#estimate[i] = Math.max(0, rest / (this.#moments[(numFeatures + 1) * i]! + ridge));
      }
    }
  }
}
