// What the caller's thread and the engine's thread say to each other. Plain data and typed arrays only.
import type { NativeDeviceInfo } from "../../types/native.d.ts";
import type { ErrorData } from "../base/errors.ts";
import { type PolicyName, policies } from "../sched/policies/index.ts";

export type { PolicyName };
export const policyNames = Object.keys(policies) as PolicyName[];

/** Sampling parameters of one request, complete and checked; meaning as in docs/plan.md. */
export interface Sampling {
  temperature: number;
  topK: number;
  topP: number;
  minP: number;
  repetition: number;
  presence: number;
  frequency: number;
  /** Low and high 32 bits. */
  seed: readonly [number, number];
  /** Token ids and addends. */
  bias: readonly (readonly [number, number])[];
}

export interface RequestSpec {
  id: number;
  prompt: Int32Array;
  maxTokens: number;
  sampling: Sampling;
  /** Stop strings; the text ends before the first match. */
  stop: readonly string[];
  /** Token ids that end the answer: the model's own and the caller's. */
  stopTokens: Int32Array;
  /** How many of `stopTokens` are the model's own: their stop reason is null. */
  numOwnStopTokens: number;
  keepSpecial: boolean;
  /** Alternatives per token whose log-probabilities are wanted; -1: none at all. */
  logprobs: number;
  promptLogprobs: number;
  /** Higher goes first. */
  priority: number;
  tenant: string;
  deadlineMs: number;
  /** Keeps prefixes apart that look alike but are not. */
  salt: string;
  /** Row of the rope table (longrope). */
  ropeRow: number;
  forkOf?: number;
}

export type ToEngine =
  | { type: "add"; request: RequestSpec }
  | { type: "abort"; id: number }
  | { type: "call"; call: number; method: CallMethod; tokens?: Int32Array; salt?: string; pin?: number }
  | { type: "events"; wanted: boolean }
  | { type: "dispose" };

/** Questions and orders that get one answer each. */
export type CallMethod = "stats" | "match" | "pin" | "unpin" | "clear" | "trace";

export type SchedulerEventName = "admit" | "finish" | "preempt";

export interface FinishedRequest {
  id: number;
  reason: "stop" | "length";
  stopReason: string | number | null;
  cachedTokens: number;
  /** Milliseconds from `add` to the first step that computed the request. */
  queueMs: number;
}

/** Numbers per entry of `StepOutput.entries`, and their places. */
export const entryWidth = 3;
export const entry = { id: 0, token: 1, textEnd: 2 } as const;

/** Everything that a step brought, in one message: entry i is one token (or the last text) of one request. */
export interface StepOutput {
  type: "step";
  /** Per entry `entryWidth` numbers: request id, token (-1: only text that was held back), where its text ends. One array: each costs a clone. */
  entries: Float64Array;
  /** All new text, one piece after another. */
  text: string;
  /** Log-probability of each entry's token, present when any request wants them. */
  logprobs?: Float32Array;
  /** `top` alternatives per entry: ids (-1: unused) and log-probabilities. */
  topTokens?: Int32Array;
  topLogprobs?: Float32Array;
  finished: FinishedRequest[];
}

/** Log-probabilities of prompt positions `first` … of one request. */
export interface PromptLogprobsOutput {
  type: "prompt-logprobs";
  id: number;
  first: number;
  logprobs: Float32Array;
  topTokens: Int32Array;
  topLogprobs: Float32Array;
}

export type FromEngine =
  | StepOutput
  | PromptLogprobsOutput
  | { type: "failed"; id: number; error: ErrorData }
  | { type: "answer"; call: number; value?: unknown; error?: ErrorData }
  | { type: "event"; event: SchedulerEventName; id: number }
  | { type: "progress"; loadedBytes: number; totalBytes: number }
  | { type: "ready"; memoryBytes: number; device: NativeDeviceInfo; threads: number }
  | { type: "refused"; error: ErrorData }
  /** The engine cannot go on; `id`s still open have been failed before. */
  | { type: "dead"; error: ErrorData }
  | { type: "disposed" };

/** Most alternatives of a token that can be asked for. */
export const maxTopLogprobs = 20;
