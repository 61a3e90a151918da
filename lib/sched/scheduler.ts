// Who computes how many tokens in the next step. One rule: computed tokens catch up with known tokens.
// Not here: the loop, tensors, text (engine), the order of requests (policies/), the memory of blocks (cache).
import { InferxError } from "../base/errors.ts";
import { invariant } from "../base/invariant.ts";
import { checkInt, checkNumber } from "../base/options.ts";
import type { CacheState } from "../cache/kv-cache.ts";
import type { RowCallback, SchedulerEvent, SchedulerOptions, SchedulerStats } from "./options.ts";
import { type Policy, policies, sortNearlySorted } from "./policies/index.ts";
import { Sequence, type SequenceSpec } from "./sequence.ts";
import { SharedStarts } from "./shared-starts.ts";
import { StepBudget } from "./step-budget.ts";
import { StepPlan } from "./step-plan.ts";
import { Tenants } from "./tenants.ts";
import { WaitingQueue } from "./waiting-queue.ts";

/** A step made of decoding rows alone may take this many times the limit of one with prompts: batches are what decoding lives on. */
const decodeStretch = 4;
/** A step that also has prompts may take this many times what its decoding rows take alone: streams must not stutter… */
const mixedStretch = 1.8;
/** …but a pause that nobody sees is always allowed, */
const unseenMs = 10;
/** and however many rows decode, prompts get this share of their time on top. */
const promptShare = 0.25;

export class Scheduler {
  readonly cache: CacheState;
  readonly #policy: Policy;
  readonly #maxStepTokens: number;
  readonly #maxLogitRows: number;
  readonly #budget: StepBudget;
  readonly #onEvent: (event: SchedulerEvent, sequence: Sequence) => void;
  readonly #sequences = new Map<number, Sequence>();
  readonly #tenants = new Tenants();
  readonly #starts: SharedStarts;
  #running: Sequence[] = [];
  readonly #waiting: WaitingQueue;
  // A ring: the plan of step n is free again when step n + maxInFlight is scheduled.
  readonly #plans: StepPlan[];
  #nextStep = 1;
  #oldestStep = 1;
  #arrivals = 0;
  // Where decoding goes on when the last step had no time for all rows.
  #resumeAt = 0;
  // Nobody is overtaken again before this step is the oldest one: by then the last one's blocks have come back.
  #overtakeAt = 0;
  // Tokens of the step before its first chunk of a prompt.
  #numDecoding = 0;
  // Somebody found no block in the step being scheduled: no one is let in.
  #contended = false;
  // Of those that found no block in the last step the first in order: served before all others in the next one.
  #stalled: Sequence | undefined;
  readonly #counters = {
    numFinished: 0,
    numPreemptions: 0,
    numSwaps: 0,
    swappedBytes: 0,
    scheduledTokens: 0,
    cachedTokens: 0,
  };

  constructor(cache: CacheState, options: SchedulerOptions = {}) {
    this.cache = cache;
    this.#policy = options.policy ?? policies.fcfs;
    this.#starts = new SharedStarts(cache.sharedTokens);
    this.#waiting = new WaitingQueue(cache, this.#policy, checkInt("maxQueued", options.maxQueued ?? 1024, 1));
    this.#maxStepTokens = checkInt("maxStepTokens", options.maxStepTokens ?? 512, 1);
    this.#maxLogitRows = checkInt("maxLogitRows", options.maxLogitRows ?? Number.MAX_SAFE_INTEGER, 1);
    this.#budget = new StepBudget(checkNumber("targetStepMs", options.targetStepMs ?? 50, 0.1));
    this.#plans = Array.from({ length: checkInt("maxInFlight", options.maxInFlight ?? 2, 1, 8) }, () => new StepPlan());
    this.#onEvent = options.onEvent ?? (() => {});
  }

  /** Puts a sequence into the queue. IX_CONTEXT_OVERFLOW, IX_KV_EXHAUSTED: it can never run; IX_QUEUE_FULL: not now. */
  add(spec: SequenceSpec): Sequence {
    if (this.#sequences.has(spec.id)) throw new InferxError("IX_INVALID_ARGUMENT", `id ${spec.id} is in use`);
    const sequence = new Sequence(spec, this.#arrivals++);
    this.#waiting.accept(sequence);
    sequence.tenant = this.#tenants.join(spec.tenant ?? "");
    const like = this.#starts.join(sequence);
    const source = spec.forkOf === undefined ? undefined : this.#sequences.get(spec.forkOf);
    if (source !== undefined) sequence.forkFrom(source);
    else if (like !== undefined && this.#policy.order(like, sequence) < 0)
      sequence.forkFrom(like, this.cache.sharedTokens);
    this.#sequences.set(sequence.id, sequence);
    return sequence;
  }

  get(id: number): Sequence | undefined {
    return this.#sequences.get(id);
  }

  /** Ends a sequence: stop token, stop string, abort. What steps in flight still sample for it is dropped. False: unknown id. */
  finish(id: number): boolean {
    const sequence = this.#sequences.get(id);
    if (sequence === undefined) return false;
    this.#sequences.delete(id);
    if (sequence.state === "running") {
      this.#running.splice(this.#running.indexOf(sequence), 1);
      this.cache.close(sequence.row);
    } else {
      this.#waiting.remove(sequence);
      if (sequence.held !== undefined) this.cache.drop(sequence.held);
    }
    sequence.leave("done");
    this.#tenants.leave(sequence.tenant);
    this.#starts.leave(sequence);
    this.#counters.numFinished++;
    this.#onEvent("finished", sequence);
    return true;
  }

  /** Keeps what is cached of a prefix; IX_KV_EXHAUSTED where an accepted request could then never finish. */
  pin(tokens: Int32Array, salt = ""): number {
    let longest = 0;
    for (const sequence of this.#sequences.values()) longest = Math.max(longest, sequence.numToHold);
    return this.cache.pin(tokens, salt, (numBlocks) => this.cache.canHold(longest, numBlocks));
  }

  /** The next step, to be submitted at once; null when there is nothing to do before a step completes or a request arrives. */
  schedule(): StepPlan | null {
    if (this.#nextStep - this.#oldestStep === this.#plans.length) return null;
    const plan = this.#planOf(this.#nextStep);
    plan.clear(this.#nextStep);
    this.cache.beginStep(plan.stepId);
    this.#contended = false;
    sortNearlySorted(this.#running, this.#policy.order);
    this.#overtake();
    this.#serveStalled(plan);
    this.#scheduleDecoding(plan);
    this.#numDecoding = plan.numTokens;
    const spentMs = this.#budget.predictMs(plan.numTokens, plan.contextTokens);
    const { limitMs } = this.#budget;
    const smoothMs = plan.numTokens === 0 ? limitMs : Math.max(mixedStretch * spentMs, unseenMs);
    const untilMs = Math.max(Math.min(limitMs, smoothMs), (1 + promptShare) * spentMs);
    this.#schedulePrompts(plan, untilMs);
    this.#admit(plan, untilMs);
    if (this.#contended) this.#running = this.#running.filter((sequence) => sequence.state === "running");
    if (plan.numSequences === 0) {
      const idle = this.#nextStep > this.#oldestStep || this.#sequences.size === 0;
      invariant(idle, "requests, no step in flight, and nothing to schedule");
      return null;
    }
    plan.tableDeltas = this.cache.deltas.view();
    plan.blockOps = this.cache.ops.view();
    plan.swapBytes = this.cache.ops.swapBytes;
    this.cache.submitStep(this.#nextStep++);
    this.#counters.scheduledTokens += plan.numTokens;
    this.#counters.swappedBytes += plan.swapBytes;
    return plan;
  }

  /**
   * The oldest step in flight has completed. `sampled`: its tokens in the order of the entries with `samples`, -1 for a row that
   * failed. `onRow` hears of each sequence that is still alive, and may call `finish`; a sequence that is complete ends after it.
   */
  complete(stepId: number, sampled: Int32Array, elapsedMs: number, onRow?: RowCallback): void {
    const inOrder = stepId === this.#oldestStep && stepId < this.#nextStep;
    invariant(inOrder, `step ${stepId} completes, expected ${this.#oldestStep}`);
    const plan = this.#planOf(stepId);
    this.#oldestStep++;
    this.cache.completeStep(stepId);
    this.#budget.observe(plan.numTokens, plan.contextTokens, elapsedMs, plan.swapBytes);
    for (let i = 0, numSampled = 0; i < plan.numSequences; i++) {
      const sequence = plan.sequences[i]!;
      const samples = plan.samples.at(i) === 1;
      const token = samples ? sampled[numSampled++]! : -1;
      if (sequence.state === "done") continue;
      if (sequence.state === "running" && sequence.admission === plan.admissions.at(i)) {
        sequence.numComputed = plan.firstPositions.at(i) + plan.numNewTokens.at(i);
        this.cache.commit(sequence.row, sequence.numComputed, sequence.tokens);
      }
      if (samples) sequence.numPending--;
      if (token >= 0) sequence.append(token);
      onRow?.(sequence, token, i);
      if (sequence.isComplete || (samples && token < 0)) this.finish(sequence.id);
    }
  }

  /** A step that somebody measured outside of the loop, of tokens without context. */
  calibrate(numTokens: number, elapsedMs: number): void {
    this.#budget.observe(numTokens, 0, elapsedMs);
  }

  stats(): SchedulerStats {
    return {
      numRunning: this.#running.length,
      numWaiting: this.#waiting.length,
      numSteps: this.#nextStep - 1,
      ...this.#counters,
      cache: this.cache.usage(),
    };
  }

  /** Decoding rows grow first; without this they could keep the blocks from a better one that is still in its prompt. */
  #serveStalled(plan: StepPlan): void {
    const sequence = this.#stalled;
    this.#stalled = undefined;
    this.#numDecoding = 0;
    if (sequence === undefined || sequence.numToCompute === 0 || !sequence.isReadyFor(plan.stepId)) return;
    this.#serve(plan, sequence, this.#chunkOf(sequence, plan, this.#budget.limitMs));
  }

  /** Sequences with one token to compute, best first, or from where the last step ran out of time. */
  #scheduleDecoding(plan: StepPlan): void {
    const untilMs = decodeStretch * this.#budget.limitMs;
    const count = this.#running.length;
    const start = this.#resumeAt < count ? this.#resumeAt : 0;
    this.#resumeAt = 0;
    for (let i = 0; i < count; i++) {
      const index = start + i < count ? start + i : start + i - count;
      const sequence = this.#running[index]!;
      if (sequence.numToCompute !== 1 || !sequence.isReadyFor(plan.stepId)) continue;
      const ms = this.#budget.predictMs(plan.numTokens + 1, plan.contextTokens + sequence.numScheduled);
      const isFull = plan.numTokens === this.#maxStepTokens || plan.rowIndex.length >= this.#maxLogitRows;
      if (isFull || (ms > untilMs && plan.numTokens > 0)) {
        this.#resumeAt = index;
        return;
      }
      this.#serve(plan, sequence, 1);
    }
  }

  #schedulePrompts(plan: StepPlan, untilMs: number): void {
    for (const sequence of this.#running) {
      if (sequence.numToCompute <= 1 || !sequence.isReadyFor(plan.stepId)) continue;
      const chunk = this.#chunkOf(sequence, plan, untilMs);
      if (chunk <= 0) return;
      this.#serve(plan, sequence, chunk);
    }
  }

  #admit(plan: StepPlan, untilMs: number): void {
    // Without a free row only a policy that lets others overtake asks who is next.
    while (!this.#contended && (this.cache.hasFreeRow || this.#policy.overtakes !== undefined)) {
      const sequence = this.#waiting.next(plan.stepId);
      if (sequence === undefined || this.#chunkOf(sequence, plan, untilMs) <= 0) return;
      const wasHeld = sequence.held !== undefined;
      if (!this.#waiting.open(sequence)) return;
      this.#running.push(sequence);
      if (!wasHeld) this.#counters.cachedTokens += sequence.numScheduled;
      this.#onEvent("admitted", sequence);
      // What was found may have left no time or no rows of logits for the rest.
      const chunk = this.#chunkOf(sequence, plan, untilMs);
      if (chunk <= 0) return;
      this.#serve(plan, sequence, chunk);
    }
  }

  /** How many of its tokens the step has time for; the first chunk of a step has at least one, whatever it takes. */
  #chunkOf(sequence: Sequence, plan: StepPlan, untilMs: number): number {
    const computeMs = untilMs - this.#budget.swapMs(this.cache.ops.swapBytes);
    const inTime = this.#budget.tokensUntil(computeMs, plan.numTokens, plan.contextTokens, sequence.numScheduled);
    const least = plan.numTokens === this.#numDecoding ? 1 : 0;
    // Tokens before the first one whose logits are wanted, and as many more as there are rows left.
    const withLogits =
      this.#maxLogitRows - plan.rowIndex.length + Math.max(0, sequence.nextLogits - sequence.numScheduled);
    return Math.min(sequence.numToCompute, this.#maxStepTokens - plan.numTokens, withLogits, Math.max(least, inTime));
  }

  /** Reserves slots, preempting others if need be, and adds the sequence to the step; or leaves it out of this step. */
  #serve(plan: StepPlan, sequence: Sequence, wanted: number): void {
    let granted = this.cache.reserve(sequence.row, wanted);
    while (granted === 0) {
      this.#contended = true;
      if (this.cache.willHaveRoom || !this.#preemptFor(sequence, plan.stepId)) {
        if (this.#stalled === undefined || this.#policy.order(sequence, this.#stalled) < 0) this.#stalled = sequence;
        return;
      }
      granted = this.cache.reserve(sequence.row, wanted);
    }
    plan.add(sequence, granted);
    sequence.tenant.served += granted;
  }

  /** Takes the blocks of the policy's victim among those that are not in this step yet; false when that is the asker itself. */
  #preemptFor(sequence: Sequence, step: number): boolean {
    const candidates = this.#running.filter((other) => other.state === "running" && other.lastStep !== step);
    const victim = this.#policy.victim(candidates);
    if (victim === sequence) return false;
    invariant(candidates.includes(victim), `policy ${this.#policy.name} chose a victim that it was not offered`);
    this.#preempt(victim);
    return true;
  }

  /** Where the policy says so, the last one running makes room for who found none: one a step, as its blocks come back with a delay. */
  #overtake(): void {
    const sequence = this.#waiting.refused;
    if (sequence === undefined || this.#running.length === 0 || this.#oldestStep < this.#overtakeAt) return;
    const victim = this.#policy.victim(this.#running);
    if (this.#policy.overtakes?.(sequence, victim) !== true) return;
    this.#running.splice(this.#running.indexOf(victim), 1);
    this.#preempt(victim);
    this.#overtakeAt = this.#nextStep;
  }

  /** Back into the queue, and its blocks to whom they are for; what they hold is kept where that is cheaper than computing it again. */
  #preempt(victim: Sequence): void {
    if (this.#budget.swapPays(this.cache.bytesToHold(victim.row), victim.numScheduled)) {
      victim.held = this.cache.hold(victim.row);
      if (victim.held !== undefined) this.#counters.numSwaps++;
    }
    this.cache.close(victim.row);
    victim.leave("waiting");
    this.#waiting.push(victim);
    this.#counters.numPreemptions++;
    this.#onEvent("preempted", victim);
  }

  #planOf(step: number): StepPlan {
    return this.#plans[step % this.#plans.length]!;
  }
}
