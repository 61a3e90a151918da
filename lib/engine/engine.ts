// The step loop: drain messages, schedule step n + 1, submit it, wait for step n, post what it brought.
// Synchronous and short; runs in a worker thread (worker.ts) or in the caller's (connection.ts), which both only feed it messages.
import type { NativeExecutor } from "../../types/native.d.ts";
import { type InferxError, toInferxError } from "../base/errors.ts";
import { policies } from "../sched/policies/index.ts";
import { Scheduler } from "../sched/scheduler.ts";
import type { Sequence } from "../sched/sequence.ts";
import type { StepPlan } from "../sched/step-plan.ts";
import type { EngineParts } from "./parts.ts";
import { type CallMethod, type FromEngine, maxTopLogprobs, type RequestSpec, type ToEngine } from "./protocol.ts";
import { EngineRequest, type TextSink } from "./request.ts";
import { StepInputs } from "./step-inputs.ts";
import { type LogprobRows, StepOutputs } from "./step-outputs.ts";

interface InFlight {
  plan: StepPlan;
  ticket: number;
  submittedAt: number;
  sampleRows: number;
  logprobs: boolean;
}

type OutputName = "token" | "token_logprob" | "top_tokens" | "top_logprobs";

const top = maxTopLogprobs;
/**
 * Tokens of the steps that a device runs before its first request. A GPU loads its kernels and chooses among products when it first
 * meets them, so each size runs twice; the second time says what steps cost, and the first prompt is cut accordingly.
 */
const warmUpTokens = { cpu: [], cuda: [1, 64, 256, 1024] };

export class Engine {
  readonly #executor: NativeExecutor;
  readonly #close: () => void;
  readonly #createText: (spec: RequestSpec) => TextSink;
  readonly #post: (message: FromEngine) => void;
  readonly #scheduler: Scheduler;
  readonly #inputs: StepInputs;
  readonly #outputs = new StepOutputs();
  readonly #requests = new Map<number, EngineRequest>();
  readonly #inFlight: InFlight[] = [];
  readonly #outputIndex: Record<OutputName, number>;
  readonly #numOutputs: number;
  readonly #tokens: Int32Array;
  readonly #logprobRows: LogprobRows;
  readonly #numTokens = { prompt: 0, generated: 0 };
  #completedAt = 0;
  #hostMicros = 0;
  #stepMs = 0;
  #wantsEvents = false;
  #sampled = new Int32Array(64);
  #dead: InferxError | undefined;

  constructor(parts: EngineParts, post: (message: FromEngine) => void) {
    this.#executor = parts.executor;
    this.#close = parts.close;
    this.#createText = parts.createText;
    this.#post = post;
    this.#scheduler = new Scheduler(parts.cache, {
      ...parts.scheduling,
      policy: policies[parts.policy],
      onEvent: (event, sequence) => this.#onEvent(event, sequence),
    });
    this.#inputs = new StepInputs(parts.layout, parts.cache);
    const index = (name: string) => parts.outputs.indexOf(name);
    this.#outputIndex = {
      token: index("token"),
      token_logprob: index("token_logprob"),
      top_tokens: index("top_tokens"),
      top_logprobs: index("top_logprobs"),
    };
    this.#numOutputs = parts.outputs.length;
    const rows = parts.layout.maxSampleRows;
    this.#tokens = new Int32Array(rows);
    this.#logprobRows = {
      logprobs: new Float32Array(rows),
      topTokens: new Int32Array(rows * top),
      topLogprobs: new Float32Array(rows * top),
      top,
    };
    // Attention leaves the rows of no sequence as they are: checked mode would complain.
    if (!parts.checked) {
      const { maxStepTokens = 1 } = parts.scheduling;
      this.#warmUp(warmUpTokens[parts.device.kind].filter((size) => size <= maxStepTokens));
    }
  }

  #warmUp(sizes: readonly number[]): void {
    for (const size of sizes) {
      for (const calibrates of [false, true]) {
        const start = performance.now();
        const { buffer, commands } = this.#inputs;
        const dims = this.#inputs.fillIdle(size);
        const step = { dims, inputs: buffer, commands: commands.storage, numCommands: 0, wanted: 0 };
        this.#executor.wait(this.#executor.submit(step), []);
        if (calibrates) this.#scheduler.calibrate(size, performance.now() - start);
      }
    }
  }

  receive(message: ToEngine): void {
    switch (message.type) {
      case "add":
        this.#add(message.request);
        break;
      case "abort":
        if (this.#requests.delete(message.id)) this.#scheduler.finish(message.id);
        break;
      case "call":
        this.#answer(message);
        break;
      case "events":
        this.#wantsEvents = message.wanted;
        break;
      case "dispose":
        this.#fail("IX_DISPOSED", "the model was disposed");
        this.#close();
        this.#post({ type: "disposed" });
        break;
    }
  }

  /** One turn of the loop. False: nothing to do until a message arrives. */
  turn(): boolean {
    if (this.#dead) return false;
    const start = performance.now();
    let waited = 0;
    try {
      const submitted = this.#submit();
      if (this.#inFlight.length === 0) return false;
      if (submitted && this.#inFlight.length === 1) return true; // the next one can be made ready before this one is waited for
      waited = this.#complete();
    } catch (error) {
      this.#die(toInferxError(error));
      return false;
    }
    const micros = (performance.now() - start - waited) * 1000;
    this.#hostMicros += (micros - this.#hostMicros) * (this.#hostMicros === 0 ? 1 : 0.05);
    return true;
  }

  #add(spec: RequestSpec): void {
    try {
      if (this.#dead) throw this.#dead;
      const request = new EngineRequest(spec, this.#createText(spec), performance.now());
      this.#requests.set(spec.id, request);
      this.#scheduler.add({
        id: spec.id,
        prompt: spec.prompt,
        maxNewTokens: spec.maxTokens,
        priority: spec.priority,
        tenant: spec.tenant,
        salt: spec.salt,
        promptLogits: spec.promptLogprobs >= 0,
        ...(Number.isFinite(spec.deadlineMs) ? { deadlineMs: spec.deadlineMs } : {}),
        ...(spec.forkOf === undefined ? {} : { forkOf: spec.forkOf }),
      });
      this.#numTokens.prompt += spec.prompt.length;
    } catch (error) {
      this.#requests.delete(spec.id);
      this.#post({ type: "failed", id: spec.id, error: toInferxError(error).toJSON() });
    }
  }

  #submit(): boolean {
    const plan = this.#scheduler.schedule();
    if (!plan) return false;
    const dims = this.#inputs.fill(plan, (id) => this.#requests.get(id)!);
    let logprobs = false;
    for (const { id } of plan.sequences) {
      const { spec } = this.#requests.get(id)!;
      logprobs ||= spec.logprobs >= 0 || spec.promptLogprobs >= 0;
    }
    const kept: OutputName[] =
      dims[2] === 0 ? [] : logprobs ? ["token", "token_logprob", "top_tokens", "top_logprobs"] : ["token"];
    const { buffer, commands } = this.#inputs;
    const ticket = this.#executor.submit({
      dims,
      inputs: buffer,
      commands: commands.storage,
      numCommands: commands.length,
      wanted: kept.reduce((mask, name) => mask | (1 << this.#outputIndex[name]), 0),
    });
    commands.clear();
    this.#inFlight.push({ plan, ticket, submittedAt: performance.now(), sampleRows: dims[2], logprobs });
    return true;
  }

  /** Waits for the oldest step and takes its results. Returns the milliseconds that it waited. */
  #complete(): number {
    const step = this.#inFlight.shift()!;
    const arrays: (Int32Array | Float32Array | null)[] = new Array(this.#numOutputs).fill(null);
    if (step.sampleRows > 0) {
      arrays[this.#outputIndex.token] = this.#tokens;
      if (step.logprobs) {
        arrays[this.#outputIndex.token_logprob] = this.#logprobRows.logprobs;
        arrays[this.#outputIndex.top_tokens] = this.#logprobRows.topTokens;
        arrays[this.#outputIndex.top_logprobs] = this.#logprobRows.topLogprobs;
      }
    }
    const before = performance.now();
    this.#executor.wait(step.ticket, arrays);
    const now = performance.now();
    const elapsed = now - Math.max(step.submittedAt, this.#completedAt);
    this.#completedAt = now;
    this.#stepMs += (elapsed - this.#stepMs) * (this.#stepMs === 0 ? 1 : 0.05);

    const { plan } = step;
    const numSampled = plan.sampleIndex.length;
    if (this.#sampled.length < numSampled) this.#sampled = new Int32Array(numSampled * 2);
    for (let i = 0; i < numSampled; i++) this.#sampled[i] = this.#tokens[plan.sampleIndex.at(i)]!;
    let logits = 0;
    let sequence = 0;
    this.#scheduler.complete(plan.stepId, this.#sampled.subarray(0, numSampled), elapsed, (current, token, index) => {
      for (; sequence < index; sequence++) logits += plan.numLogits.at(sequence);
      this.#onRow(step, current, token, index, logits);
    });
    if (!this.#outputs.isEmpty) {
      this.#post(this.#outputs.message(step.logprobs ? this.#logprobRows : undefined));
    }
    return now - before;
  }

  /** What a completed step means for one living sequence; its rows of logits start at `logits`. */
  #onRow(step: InFlight, sequence: Sequence, token: number, index: number, logits: number): void {
    const request = this.#requests.get(sequence.id)!;
    const numLogits = step.plan.numLogits.at(index);
    if (request.spec.promptLogprobs >= 0) this.#postPromptLogprobs(step, sequence, index, logits, numLogits);
    const row = request.spec.logprobs >= 0 ? logits + numLogits - 1 : -1;
    if (token >= 0) {
      this.#numTokens.generated++;
      const { text, end } = request.accept(token);
      this.#outputs.add(sequence.id, token, text, row);
      if (end) {
        this.#finish(request, sequence, end.reason, end.stopReason);
        return;
      }
    }
    if (!sequence.isComplete) return;
    const { text, end } = request.finish();
    if (text !== "") this.#outputs.add(sequence.id, -1, text, -1);
    this.#finish(request, sequence, end.reason, end.stopReason);
  }

  #finish(
    request: EngineRequest,
    sequence: Sequence,
    reason: "stop" | "length",
    stopReason: string | number | null,
  ): void {
    this.#outputs.finish({
      id: sequence.id,
      reason,
      stopReason,
      cachedTokens: sequence.numCached,
      queueMs: request.queueMs,
    });
    this.#requests.delete(sequence.id);
    this.#scheduler.finish(sequence.id);
  }

  #postPromptLogprobs(step: InFlight, sequence: Sequence, index: number, start: number, count: number): void {
    const end = step.plan.firstPositions.at(index) + step.plan.numNewTokens.at(index);
    // The row of position p tells of token p + 1; the row of the prompt's last token tells of the answer.
    const first = end - count;
    const rows = Math.max(0, Math.min(count, sequence.promptLength - 1 - first));
    if (rows === 0) return;
    const { logprobs, topTokens, topLogprobs } = this.#logprobRows;
    this.#post({
      type: "prompt-logprobs",
      id: sequence.id,
      first: first + 1,
      logprobs: logprobs.slice(start, start + rows),
      topTokens: topTokens.slice(start * top, (start + rows) * top),
      topLogprobs: topLogprobs.slice(start * top, (start + rows) * top),
    });
  }

  #onEvent(event: "admitted" | "preempted" | "finished", sequence: Sequence): void {
    const request = this.#requests.get(sequence.id);
    if (event === "admitted" && request) {
      if (!request.started) request.queueMs = performance.now() - request.arrivedAt;
      request.started = true;
      this.#inputs.admit(request, sequence.row, sequence.tokens, sequence.promptLength, sequence.numKnown);
    }
    if (!this.#wantsEvents) return;
    this.#post({
      type: "event",
      id: sequence.id,
      event: event === "admitted" ? "admit" : event === "preempted" ? "preempt" : "finish",
    });
  }

  #answer({ call, method, tokens, salt, pin }: Extract<ToEngine, { type: "call" }>): void {
    const answers: Record<CallMethod, () => unknown> = {
      stats: () => this.#stats(),
      match: () => this.#scheduler.cache.match(tokens!, salt!),
      pin: () => this.#scheduler.pin(tokens!, salt),
      unpin: () => this.#scheduler.cache.unpin(pin!),
      clear: () => this.#scheduler.cache.clear(),
      trace: () => this.#executor.trace(),
    };
    try {
      if (this.#dead) throw this.#dead;
      this.#post({ type: "answer", call, value: answers[method]() });
    } catch (error) {
      this.#post({ type: "answer", call, error: toInferxError(error).toJSON() });
    }
  }

  #stats(): unknown {
    return {
      ...this.#scheduler.stats(),
      ...this.#numTokens,
      hostMicrosPerStep: this.#hostMicros,
      stepMs: this.#stepMs,
    };
  }

  /** The device or our own code failed: nobody's request can go on, and everybody is told why. */
  #die(error: InferxError): void {
    this.#fail(error.code, error.message);
    try {
      this.#close();
    } finally {
      this.#post({ type: "dead", error: error.toJSON() });
    }
  }

  #fail(code: InferxError["code"], message: string): void {
    this.#dead = toInferxError(Object.assign(new Error(message), { code }));
    for (const id of this.#requests.keys()) this.#post({ type: "failed", id, error: this.#dead.toJSON() });
    this.#requests.clear();
  }
}
