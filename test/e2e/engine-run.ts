// An engine in this thread, taken turn by turn, with the cache's integrity checked after each: what random tests look at. Its clock is of
// the run alone, moved on by what steps would take, so that the same calls always give the same schedule. Not here: any expectation.
import { completeRequest } from "../../lib/api/request.ts";
import type { GenerateOptions } from "../../lib/api/types.ts";
import type { CacheState } from "../../lib/cache/kv-cache.ts";
import { Engine } from "../../lib/engine/engine.ts";
import { openParts } from "../../lib/engine/parts.ts";
import type { EngineOptions, PreparedModel } from "../../lib/engine/prepare.ts";
import {
  type CallMethod,
  entry,
  entryWidth,
  type FromEngine,
  maxTopLogprobs,
  type RequestSpec,
} from "../../lib/engine/protocol.ts";
import { native } from "../../lib/native/binding.ts";
import type { SchedulerStats } from "../../lib/sched/options.ts";

export interface Answer {
  spec: RequestSpec;
  options: GenerateOptions;
  tokens: number[];
  text: string;
  /** Of each token with its alternatives: log-probabilities, where they were asked for. */
  logprobs: number[];
  promptLogprobs: number[];
  /** `failed:` with a code, where the engine refused it. */
  end: string | undefined;
}

/** Milliseconds of a step in the run's own time. */
const stepMs = (tokens: number) => 1 + 0.05 * tokens;
let lastId = 0;

export class EngineRun {
  readonly cache: CacheState;
  readonly answers = new Map<number, Answer>();
  readonly #prepared: PreparedModel;
  readonly #engine: Engine;
  readonly #cacheTokens: number;
  #answered: { value?: unknown; error?: { code: string } } = {};
  #fault: string | undefined;
  #nowMs = 0;

  /** `checked` and the device are the model's. */
  static async open(prepared: PreparedModel, options: EngineOptions): Promise<EngineRun> {
    const config = prepared.engineConfig(options);
    const parts = await openParts(
      native(),
      config,
      () => {},
      () => {},
    );
    return new EngineRun(prepared, parts);
  }

  private constructor(prepared: PreparedModel, parts: Awaited<ReturnType<typeof openParts>>) {
    const { executor, cache } = parts;
    this.cache = cache;
    this.#prepared = prepared;
    this.#cacheTokens = Math.min(...cache.groups.map(({ spec, pool }) => pool.numBlocks * spec.tokensPerBlock));
    let ms = 0;
    // All that an engine asks of an executor in its loop.
    const timed: Pick<typeof executor, "submit" | "wait"> = {
      submit: (step) => {
        ms = stepMs(step.dims[0]);
        return executor.submit(step);
      },
      wait: (ticket, outputs) => {
        this.#nowMs += ms;
        return executor.wait(ticket, outputs);
      },
    };
    this.#engine = this.#timed(
      () => new Engine({ ...parts, executor: timed as typeof executor }, (message) => this.#receive(message)),
    );
  }

  /** Returns the request's id. @throws what `Scheduler.add` rejects with before the engine sees the request */
  add(prompt: readonly number[], options: GenerateOptions, forkOf?: number): number {
    const id = ++lastId;
    const defaults = { ...this.#prepared.requestDefaults, cacheTokens: this.#cacheTokens };
    const spec = completeRequest(id, Int32Array.from(prompt), options, defaults);
    if (forkOf !== undefined) spec.forkOf = forkOf;
    this.answers.set(id, { spec, options, tokens: [], text: "", logprobs: [], promptLogprobs: [], end: undefined });
    this.#timed(() => this.#engine.receive({ type: "add", request: spec }));
    return id;
  }

  abort(id: number): void {
    this.answers.get(id)!.end = "abort";
    this.#engine.receive({ type: "abort", id });
  }

  /** The call's value, or the code of its error. */
  call(method: CallMethod, fields: { tokens?: Int32Array; salt?: string; pin?: number } = {}): unknown {
    this.#engine.receive({ type: "call", call: 0, method, ...fields });
    return this.#answered.error?.code ?? this.#answered.value;
  }

  get stats(): SchedulerStats {
    return this.call("stats") as SchedulerStats;
  }

  get running(): Answer[] {
    return [...this.answers.values()].filter(({ end }) => end === undefined);
  }

  /** False: nothing to do. @throws IX_INTERNAL when the cache's books are wrong, and what the device reports */
  turn(): boolean {
    const moved = this.#timed(() => this.#engine.turn());
    if (this.#fault !== undefined) throw new Error(this.#fault);
    this.cache.checkIntegrity();
    return moved;
  }

  runToEnd(): void {
    while (this.turn());
  }

  close(): void {
    this.#engine.receive({ type: "dispose" });
  }

  #timed<T>(call: () => T): T {
    const { now } = performance;
    performance.now = () => this.#nowMs;
    try {
      return call();
    } finally {
      performance.now = now;
    }
  }

  #receive(message: FromEngine): void {
    if (message.type === "dead") this.#fault = `${message.error.code} ${message.error.message}`;
    if (message.type === "answer") this.#answered = message;
    if (message.type === "failed")
      this.answers.get(message.id)!.end ??= `failed: ${message.error.code} ${message.error.message}`;
    if (message.type === "prompt-logprobs") this.answers.get(message.id)!.promptLogprobs.push(...message.logprobs);
    if (message.type !== "step") return;
    const { entries, text, logprobs, topLogprobs, finished } = message;
    for (let i = 0; i * entryWidth < entries.length; i++) {
      const at = i * entryWidth;
      const answer = this.answers.get(entries[at + entry.id]!)!;
      answer.text += text.slice(i === 0 ? 0 : entries[at - entryWidth + entry.textEnd], entries[at + entry.textEnd]);
      const token = entries[at + entry.token]!;
      if (token < 0) continue;
      answer.tokens.push(token);
      const wanted = answer.spec.logprobs;
      if (wanted < 0) continue;
      const start = i * maxTopLogprobs;
      answer.logprobs.push(logprobs![i]!, ...topLogprobs!.subarray(start, start + wanted));
    }
    for (const { id, reason, stopReason } of finished) this.answers.get(id)!.end = `${reason} ${stopReason}`;
  }
}
