// Drives a scheduler as the engine's loop does: schedule a step ahead, submit, wait for the older step, apply its tokens.
import { blockOp } from "../../lib/cache/block-ops.ts";
import { type CacheOptions, CacheState } from "../../lib/cache/kv-cache.ts";
import type { SchedulerOptions } from "../../lib/sched/options.ts";
import { Scheduler } from "../../lib/sched/scheduler.ts";
import type { Sequence, SequenceSpec } from "../../lib/sched/sequence.ts";
import { FakeExecutor, type FakeRequest, type FakeStep, stopToken } from "./fake-executor.ts";

export type RequestOptions = FakeRequest & Omit<SequenceSpec, "id" | "prompt" | "maxNewTokens" | "salt">;

export interface Outcome {
  request: RequestOptions;
  text: number[];
  ended: "stop" | "length" | "abort" | undefined;
  finishedAtStep: number;
}

export class Simulation {
  readonly cache: CacheState;
  readonly scheduler: Scheduler;
  readonly executor: FakeExecutor;
  readonly outcomes = new Map<number, Outcome>();
  readonly events: { event: string; id: number }[] = [];
  elapsedMs: (step: FakeStep) => number = () => 1;
  numSteps = 0;
  /** How many blocks were copied, swapped, poisoned. */
  readonly numBlocks = { copy: 0, poison: 0, swapOut: 0, swapIn: 0 };
  readonly #maxLogitRows: number;
  #lastId = 0;

  constructor(cacheOptions: CacheOptions, options: SchedulerOptions = {}, cache = new CacheState(cacheOptions)) {
    this.cache = cache;
    this.#maxLogitRows = options.maxLogitRows ?? Number.POSITIVE_INFINITY;
    this.scheduler = new Scheduler(cache, {
      ...options,
      onEvent: (event, sequence) => {
        this.events.push({ event, id: sequence.id });
        options.onEvent?.(event, sequence);
      },
    });
    this.executor = new FakeExecutor(cache);
  }

  add(request: RequestOptions): number {
    const id = this.#lastId + 1;
    const { seed: _, ...spec } = request;
    this.scheduler.add({ id, ...spec });
    this.#lastId = id;
    this.executor.addRequest(id, request);
    this.outcomes.set(id, { request, text: [], ended: undefined, finishedAtStep: 0 });
    return id;
  }

  abort(id: number): void {
    if (!this.scheduler.finish(id)) return;
    this.outcomes.get(id)!.ended = "abort";
  }

  /** One turn: run ahead while the scheduler has something to say, else take the oldest step. False when nothing moved. */
  turn(): boolean {
    const plan = this.scheduler.schedule();
    if (plan !== null) {
      if (plan.rowIndex.length > this.#maxLogitRows)
        throw new Error(`${plan.rowIndex.length} rows of logits in a step`);
      this.executor.submit(plan);
      for (const [name, op] of Object.entries(blockOp)) {
        const count = plan.blockOps.filter((value, i) => i % 4 === 0 && value === op).length;
        this.numBlocks[name as keyof typeof blockOp] += count;
      }
    } else if (this.executor.inFlight.length > 0) this.#complete();
    else return false;
    this.cache.checkIntegrity();
    return true;
  }

  runToEnd(maxTurns = 200_000): void {
    for (let turns = 0; this.turn(); turns++) if (turns > maxTurns) throw new Error("the simulation does not end");
  }

  #complete(): void {
    const { step, sampled } = this.executor.wait();
    this.numSteps++;
    this.scheduler.complete(step.stepId, sampled, this.elapsedMs(step), (sequence, token) =>
      this.#onRow(sequence, token),
    );
  }

  #onRow(sequence: Sequence, token: number): void {
    const outcome = this.outcomes.get(sequence.id)!;
    outcome.finishedAtStep = this.numSteps;
    if (token >= 0) outcome.text.push(token);
    if (token === stopToken) {
      outcome.ended = "stop";
      this.scheduler.finish(sequence.id);
    } else if (sequence.isComplete) {
      outcome.ended = "length";
    }
  }
}
