// How many tokens fit into a step of so many milliseconds: a running estimate of t = fixed + perToken * T + perContext * C.
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
const ridge = 0.02;

/** Exponentially weighted least squares in three unknowns, held near the last estimate where steps look all alike. */
export class StepBudget {
  readonly targetMs: number;
  #estimate: [number, number, number];
  readonly #moments = new Float64Array(9);
  readonly #projections = new Float64Array(3);
  #numObserved = 0;
  #largestTokens = firstStepTokens / growth;

  constructor(targetMs: number) {
    this.targetMs = targetMs;
    this.#estimate = [0, (targetMs * tokenUnit) / 64, 0];
  }

  /** For steps mixed with prompts: the target, but where fixed costs (reading weights) are high at least half of a step does work. */
  get limitMs(): number {
    return Math.max(this.targetMs, 2 * this.#estimate[0]);
  }

  predictMs(numTokens: number, contextTokens: number): number {
    const [fixed, perToken, perContext] = this.#estimate;
    return fixed + (perToken * numTokens) / tokenUnit + (perContext * contextTokens) / contextUnit;
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
  observe(numTokens: number, contextTokens: number, elapsedMs: number): void {
    const features = [1, numTokens / tokenUnit, contextTokens / contextUnit];
    // A hiccup of the machine is no news about the model, once there is a model.
    const plausibleMs = 4 * Math.max(this.targetMs, this.predictMs(numTokens, contextTokens));
    const ms = this.#numObserved++ < 8 ? elapsedMs : Math.min(elapsedMs, plausibleMs);
    for (let i = 0; i < 3; i++) {
      for (let j = 0; j < 3; j++)
        this.#moments[3 * i + j] = decay * this.#moments[3 * i + j]! + features[i]! * features[j]!;
      this.#projections[i] = decay * this.#projections[i]! + features[i]! * ms;
    }
    this.#largestTokens = Math.max(this.#largestTokens, numTokens);
    // Coordinate descent keeps the three coefficients non-negative; they start from the last estimate, which is near.
    const previous = [...this.#estimate];
    for (let sweep = 0; sweep < 100; sweep++) {
      for (let i = 0; i < 3; i++) {
        let rest = this.#projections[i]! + ridge * previous[i]!;
        for (let j = 0; j < 3; j++) if (j !== i) rest -= this.#moments[3 * i + j]! * this.#estimate[j]!;
        this.#estimate[i] = Math.max(0, rest / (this.#moments[4 * i]! + ridge));
      }
    }
  }
}
