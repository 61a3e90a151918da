// Where the end-to-end tests find their models, and small shared ways of asking them. Not here: any expectation.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { InferxError } from "../../lib/index.ts";

export const repository = join(import.meta.dirname, "../..");
export const demoPath = join(repository, "models/demo/demo-q8_0.gguf");
export const goldenRoot = join(repository, "test/fixtures/golden");
/** How many random cases a property gets; more by INFERX_RANDOM_RUNS. */
export const randomRuns = Number(process.env.INFERX_RANDOM_RUNS ?? 2);

export interface GoldenPrompt {
  name: string;
  input_ids: number[];
  last_logits: number[];
  mid_logits: Record<string, number[]>;
  greedy: number[];
  greedy_min_margin: number;
}

export function goldenPrompts(folder: string): GoldenPrompt[] {
  const path = join(folder, "expected.json.gz");
  return JSON.parse(gunzipSync(readFileSync(path)).toString()).prompts;
}

/** Data of the project that is not in the repository; undefined where it is absent. */
export function sharedPath(...parts: string[]): string | undefined {
  const path = join(repository, "../shared", ...parts);
  return existsSync(path) ? path : undefined;
}

/** The code that a call or promise fails with; throws where it does not fail, or not with an InferxError. */
export async function codeOf(call: PromiseLike<unknown> | (() => unknown)): Promise<string> {
  try {
    await (typeof call === "function" ? call() : call);
  } catch (error) {
    if (InferxError.is(error)) return error.code;
    throw error;
  }
  throw new Error("expected an error, got none");
}

export function argmax(values: ArrayLike<number>): number {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i]! > values[best]!) best = i;
  return best;
}

/** Largest difference over the largest wanted value (at least 1); infinite where anything is NaN. */
export function relativeError(actual: ArrayLike<number>, wanted: ArrayLike<number>): number {
  let worst = 0;
  let largest = 1;
  for (let i = 0; i < wanted.length; i++) {
    const difference = Math.abs(actual[i]! - wanted[i]!);
    if (!(difference <= worst)) worst = Number.isNaN(difference) ? Number.POSITIVE_INFINITY : difference;
    largest = Math.max(largest, Math.abs(wanted[i]!));
  }
  return worst / largest;
}

export function logSoftmax(logits: ArrayLike<number>): Float64Array {
  let largest = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < logits.length; i++) largest = Math.max(largest, logits[i]!);
  let sum = 0;
  for (let i = 0; i < logits.length; i++) sum += Math.exp(logits[i]! - largest);
  const shift = largest + Math.log(sum);
  return Float64Array.from(logits, (value) => value - shift);
}

/** Lets the engine and timers go on. */
export function turns(count: number): Promise<void> {
  return new Promise((resolve) => {
    const next = (left: number) => (left === 0 ? resolve() : setImmediate(next, left - 1));
    next(count);
  });
}
