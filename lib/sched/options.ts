// What a scheduler is told, and what it tells of itself. Not here: what it does (scheduler.ts) and a request's own options (sequence.ts).
import type { CacheGroupUsage } from "../cache/kv-cache.ts";
import type { Policy } from "./policies/index.ts";
import type { Sequence } from "./sequence.ts";

export type SchedulerEvent = "admitted" | "preempted" | "finished";

export interface SchedulerOptions {
  policy?: Policy;
  /** Tokens of one step at most (the size of the plan's arenas). Default 512. */
  maxStepTokens?: number;
  /**
   * What a step that computes prompts should take, by estimate; default 50. An abort takes effect within a step and streams
   * pause for one, so it should stay well under the 100 ms that people notice; below 50 the fixed cost of a step dominates.
   */
  targetStepMs?: number;
  /** Rows of a step that may ask for logits before prompts that want theirs (log-probabilities) wait; default: no limit. */
  maxLogitRows?: number;
  /** Waiting requests at most. Default 1024. */
  maxQueued?: number;
  /** Steps scheduled and not completed. Default 2: one runs, the next one is ready. */
  maxInFlight?: number;
  onEvent?: (event: SchedulerEvent, sequence: Sequence) => void;
}

export interface SchedulerStats {
  numRunning: number;
  numWaiting: number;
  numFinished: number;
  numPreemptions: number;
  /** Preemptions that kept what was computed, and the bytes that they moved from the device to the host or back. */
  numSwaps: number;
  swappedBytes: number;
  numSteps: number;
  /** Tokens put into steps (again after a preemption), and tokens that were found in the cache or shared by a fork instead. */
  scheduledTokens: number;
  cachedTokens: number;
  cache: CacheGroupUsage[];
}

/** `token`: what was sampled, -1 where entry `index` of the plan sampled nothing (or failed on the device). */
export type RowCallback = (sequence: Sequence, token: number, index: number) => void;
