// The caller's side of an engine: hands requests over, deals outputs out by id, and answers for an engine that has died.
import type { NativeDeviceInfo } from "../../types/native.d.ts";
import { type ErrorData, fromErrorData, InferxError } from "../base/errors.ts";
import { type Connection, connectLocal, connectWorker } from "./connection.ts";
import type { EngineConfig } from "./parts.ts";
import {
  type CallMethod,
  entry,
  entryWidth,
  type FinishedRequest,
  type FromEngine,
  type PromptLogprobsOutput,
  type RequestSpec,
  type SchedulerEventName,
  type StepOutput,
  type ToEngine,
} from "./protocol.ts";

/** Receives what belongs to one request. Called at most once per token, never after `onEnd` or `onError`. */
export interface RequestSink {
  /** Entry `index` of a step's output. */
  onToken(step: StepOutput, index: number): void;
  onPromptLogprobs(output: PromptLogprobsOutput): void;
  /** All entries of one step were given. */
  onStep(): void;
  onEnd(end: FinishedRequest): void;
  onError(error: InferxError): void;
}

export interface EngineClientOptions {
  thread: "worker" | "main";
  onProgress?: ((loadedBytes: number, totalBytes: number) => void) | undefined;
  onEvent?: ((event: SchedulerEventName, id: number) => void) | undefined;
  signal?: AbortSignal | undefined;
}

// Ids are unique in the process, so that outputs that come late can never meet a newer request.
let lastId = 0;
export function nextRequestId(): number {
  return ++lastId;
}

interface Call {
  resolve: (value: unknown) => void;
  reject: (error: InferxError) => void;
}

export class EngineClient {
  #connection!: Connection;
  readonly #sinks = new Map<number, RequestSink>();
  readonly #calls = new Map<number, Call>();
  readonly #onEvent: EngineClientOptions["onEvent"];
  #lastCall = 0;
  #dead: InferxError | undefined;
  #disposing: { promise: Promise<void>; resolve: () => void } | undefined;
  device!: NativeDeviceInfo;
  threads = 0;
  memoryBytes = 0;

  private constructor(options: EngineClientOptions) {
    this.#onEvent = options.onEvent;
  }

  /** Resolves when the engine is ready. @throws what `openParts` throws; IX_ABORTED by the signal. */
  static start(config: EngineConfig, options: EngineClientOptions): Promise<EngineClient> {
    const client = new EngineClient(options);
    const { signal } = options;
    const cancelled = () => new InferxError("IX_ABORTED", "loading was cancelled", {}, { cause: signal!.reason });
    if (signal?.aborted) return Promise.reject(cancelled());
    return new Promise((resolve, reject) => {
      const abort = () => client.#connection.post({ type: "dispose" });
      const settle = (error?: InferxError) => {
        signal?.removeEventListener("abort", abort);
        if (error) reject(signal?.aborted ? cancelled() : error);
        else if (!signal?.aborted) resolve(client);
        else void client.dispose().then(() => reject(cancelled())); // the order to stop came when all was loaded
      };
      const onMessage = (message: FromEngine) => {
        if (message.type === "progress") options.onProgress?.(message.loadedBytes, message.totalBytes);
        else if (message.type === "refused") settle(fromErrorData(message.error));
        else if (message.type === "ready") {
          Object.assign(client, { device: message.device, threads: message.threads, memoryBytes: message.memoryBytes });
          client.#updateKeepAlive();
          settle();
        } else client.#onMessage(message);
      };
      const onEnd = (error: InferxError) => {
        client.#onEnd(error);
        settle(error);
      };
      const connect = options.thread === "worker" ? connectWorker : connectLocal;
      client.#connection = connect(config, onMessage, onEnd);
      signal?.addEventListener("abort", abort, { once: true });
    });
  }

  /** True from `dispose` or a fault on. */
  get isClosed(): boolean {
    return this.#dead !== undefined || this.#disposing !== undefined;
  }

  add(request: RequestSpec, sink: RequestSink): void {
    const closed = this.#closedError();
    if (closed) {
      sink.onError(closed);
      return;
    }
    this.#sinks.set(request.id, sink);
    this.#post({ type: "add", request });
  }

  /** Ends a request without an answer; its sink hears nothing more. False: it had ended already. */
  abort(id: number): boolean {
    if (!this.#sinks.delete(id)) return false;
    this.#post({ type: "abort", id });
    return true;
  }

  call(method: CallMethod, fields: Partial<Extract<ToEngine, { type: "call" }>> = {}): Promise<unknown> {
    const closed = this.#closedError();
    if (closed) return Promise.reject(closed);
    return new Promise((resolve, reject) => {
      this.#calls.set(++this.#lastCall, { resolve, reject });
      this.#post({ type: "call", call: this.#lastCall, method, ...fields });
    });
  }

  wantEvents(wanted: boolean): void {
    if (!this.isClosed) this.#post({ type: "events", wanted });
  }

  /** Cancels everything and frees the engine's memory; resolves within a step. */
  dispose(): Promise<void> {
    if (this.#disposing) return this.#disposing.promise;
    let resolve = () => {};
    const promise = new Promise<void>((done) => {
      resolve = done;
    });
    this.#disposing = { promise, resolve };
    if (this.#dead) resolve();
    else this.#post({ type: "dispose" });
    return promise;
  }

  #closedError(): InferxError | undefined {
    return this.#dead ?? (this.#disposing && new InferxError("IX_DISPOSED", "the model was disposed"));
  }

  #post(message: ToEngine): void {
    this.#updateKeepAlive();
    this.#connection.post(message);
  }

  #updateKeepAlive(): void {
    this.#connection.keepAlive(
      this.#sinks.size > 0 || this.#calls.size > 0 || (this.#disposing !== undefined && !this.#dead),
    );
  }

  #onMessage(message: Exclude<FromEngine, { type: "progress" | "ready" | "refused" }>): void {
    switch (message.type) {
      case "step":
        this.#onStep(message);
        break;
      case "prompt-logprobs":
        this.#sinks.get(message.id)?.onPromptLogprobs(message);
        break;
      case "failed":
        this.#failOne(message.id, message.error);
        break;
      case "answer": {
        const call = this.#calls.get(message.call);
        this.#calls.delete(message.call);
        if (message.error) call?.reject(fromErrorData(message.error));
        else call?.resolve(message.value);
        break;
      }
      case "event":
        this.#onEvent?.(message.event, message.id);
        break;
      case "dead":
        this.#onEnd(fromErrorData(message.error));
        break;
      case "disposed":
        this.#onEnd(new InferxError("IX_DISPOSED", "the model was disposed"));
        break;
    }
    this.#updateKeepAlive();
  }

  #onStep(step: StepOutput): void {
    const touched = new Set<RequestSink>();
    for (let i = 0; i * entryWidth < step.entries.length; i++) {
      const sink = this.#sinks.get(step.entries[i * entryWidth + entry.id]!);
      if (!sink) continue; // aborted here while the step ran there
      sink.onToken(step, i);
      touched.add(sink);
    }
    for (const sink of touched) sink.onStep();
    for (const end of step.finished) {
      const sink = this.#sinks.get(end.id);
      this.#sinks.delete(end.id);
      sink?.onEnd(end);
    }
  }

  #failOne(id: number, error: ErrorData): void {
    const sink = this.#sinks.get(id);
    this.#sinks.delete(id);
    sink?.onError(fromErrorData(error));
  }

  /** The engine is gone: by order, by a fault, or with its thread. Everybody who waits is told. */
  #onEnd(error: InferxError): void {
    const reason = this.#disposing ? new InferxError("IX_DISPOSED", "the model was disposed") : error;
    this.#dead ??= reason;
    const sinks = [...this.#sinks.values()];
    const calls = [...this.#calls.values()];
    this.#sinks.clear();
    this.#calls.clear();
    for (const sink of sinks) sink.onError(reason);
    for (const call of calls) call.reject(reason);
    this.#disposing?.resolve();
  }
}
