// One answer on its way: an async iterable of chunks and an awaitable of the whole, fed by the engine step by step.
import { InferxError, toInferxError } from "../base/errors.ts";
import type { EngineClient, RequestSink } from "../engine/client.ts";
import {
  entry,
  entryWidth,
  type FinishedRequest,
  maxTopLogprobs,
  type PromptLogprobsOutput,
  type RequestSpec,
  type StepOutput,
} from "../engine/protocol.ts";
import type { TokenTable } from "../engine/token-table.ts";
import type { GeneratedToken, GenerationChunk, GenerationResult, PromptLogprob, TokenLogprob } from "./types.ts";

/** @internal What a generation needs of its surroundings. */
export interface GenerationSource {
  /** Encodes, checks and completes the request; resolves when it may be handed to the engine. */
  prepare(): Promise<{ spec: RequestSpec; client: EngineClient; tokens: TokenTable }>;
  id: number;
  signal?: AbortSignal | undefined;
}

/**
 * An answer: `for await (const chunk of generation)` streams it, `await generation` gives the whole. Both may be used, and
 * leaving the loop early aborts.
 * Errors: IX_ABORTED (with `details.text` and `details.tokens` as far as they came), and those of `generate`.
 */
export class Generation implements AsyncIterable<GenerationChunk>, PromiseLike<GenerationResult> {
  /** Never reused within the process. */
  readonly id: number;
  readonly #sink: RequestSink;
  readonly #startedAt = performance.now();
  #firstTokenAt = 0;
  #endedAt = 0;
  readonly #chunks: GenerationChunk[] = [];
  #chunk: GenerationChunk = { text: "", tokens: [] };
  #wakes: (() => void)[] = [];
  #text = "";
  readonly #tokens: GeneratedToken[] = [];
  readonly #promptLogprobs: PromptLogprob[] = [];
  #result: GenerationResult | undefined;
  #error: InferxError | undefined;
  readonly #waiters: { resolve: (result: GenerationResult) => void; reject: (error: InferxError) => void }[] = [];
  readonly #onAbort: (() => void) | undefined;
  readonly #signal: AbortSignal | undefined;
  #client: EngineClient | undefined;
  #spec: RequestSpec | undefined;
  #table: TokenTable | undefined;

  /** @internal Made by `generate`, `chat`, `Scheduler.add` and `KVCache.fork`. */
  constructor(source: GenerationSource) {
    this.id = source.id;
    this.#signal = source.signal;
    this.#sink = {
      onToken: (step, index) => this.#onToken(step, index),
      onPromptLogprobs: (output) => this.#onPromptLogprobs(output),
      onStep: () => this.#onStep(),
      onEnd: (end) => this.#onEnd(end),
      onError: (error) => this.#fail(error),
    };
    if (source.signal) {
      this.#onAbort = () => this.abort(source.signal!.reason);
      source.signal.addEventListener("abort", this.#onAbort, { once: true });
    }
    if (source.signal?.aborted) this.abort(source.signal.reason);
    else void this.#start(source);
  }

  async #start(source: GenerationSource): Promise<void> {
    try {
      const { spec, client, tokens } = await source.prepare();
      if (this.#error) return;
      this.#spec = spec;
      this.#client = client;
      this.#table = tokens;
      if (spec.promptLogprobs >= 0) this.#promptLogprobs.push({ id: spec.prompt[0]!, logprob: null, topLogprobs: [] });
      client.add(spec, this.#sink);
    } catch (error) {
      this.#fail(toInferxError(error));
    }
  }

  /** @internal Tokens of prompt and answer so far; undefined before the request has reached the engine. */
  get state(): { spec: RequestSpec; tokens: readonly GeneratedToken[] } | undefined {
    return this.#spec && { spec: this.#spec, tokens: this.#tokens };
  }

  /** Ends the request within one step. What came so far is in the error's details. */
  abort(reason?: unknown): void {
    if (this.#isOver) return;
    this.#client?.abort(this.id);
    this.#fail(
      new InferxError(
        "IX_ABORTED",
        "the request was aborted",
        { text: this.#text, tokens: this.#tokens.map(({ id }) => id) },
        { cause: reason },
      ),
    );
  }

  // biome-ignore lint/suspicious/noThenProperty: a generation is awaitable by design
  then<A = GenerationResult, B = never>(
    onResult?: ((result: GenerationResult) => A | PromiseLike<A>) | null,
    onError?: ((error: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return new Promise<GenerationResult>((resolve, reject) => {
      if (this.#result) resolve(this.#result);
      else if (this.#error) reject(this.#error);
      else this.#waiters.push({ resolve, reject });
    }).then(onResult, onError);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<GenerationChunk, void, undefined> {
    let next = 0; // each loop sees all chunks, whenever it starts
    try {
      for (;;) {
        while (next < this.#chunks.length) yield this.#chunks[next++]!;
        if (this.#error) throw this.#error;
        if (this.#result) return;
        await new Promise<void>((resolve) => this.#wakes.push(resolve));
      }
    } finally {
      this.abort();
    }
  }

  get #isOver(): boolean {
    return this.#result !== undefined || this.#error !== undefined;
  }

  #onToken(step: StepOutput, index: number): void {
    const at = index * entryWidth;
    const textStart = index === 0 ? 0 : step.entries[at - entryWidth + entry.textEnd];
    const text = step.text.slice(textStart, step.entries[at + entry.textEnd]);
    this.#text += text;
    this.#chunk.text += text;
    const id = step.entries[at + entry.token]!;
    if (id < 0) return;
    this.#firstTokenAt ||= performance.now();
    const token: GeneratedToken = { id, bytes: this.#table!.bytes(id) };
    if (step.logprobs && this.#spec!.logprobs >= 0) {
      token.logprob = step.logprobs[index]!;
      token.topLogprobs = this.#alternatives(step.topTokens!, step.topLogprobs!, index, this.#spec!.logprobs);
    }
    this.#tokens.push(token);
    this.#chunk.tokens.push(token);
  }

  #onPromptLogprobs({ first, logprobs, topTokens, topLogprobs }: PromptLogprobsOutput): void {
    const { prompt, promptLogprobs } = this.#spec!;
    logprobs.forEach((logprob, i) => {
      const alternatives = this.#alternatives(topTokens, topLogprobs, i, promptLogprobs);
      this.#promptLogprobs[first + i] = { id: prompt[first + i]!, logprob, topLogprobs: alternatives };
    });
  }

  #alternatives(ids: Int32Array, logprobs: Float32Array, row: number, count: number): TokenLogprob[] {
    const out: TokenLogprob[] = [];
    for (let j = row * maxTopLogprobs; j < row * maxTopLogprobs + count && ids[j]! >= 0; j++) {
      out.push({
        id: ids[j]!,
        text: this.#table!.text(ids[j]!),
        bytes: this.#table!.bytes(ids[j]!),
        logprob: logprobs[j]!,
      });
    }
    return out;
  }

  #onStep(): void {
    if (this.#chunk.text === "" && this.#chunk.tokens.length === 0) return;
    this.#chunks.push(this.#chunk);
    this.#chunk = { text: "", tokens: [] };
    this.#notify();
  }

  #onEnd({ reason, stopReason, cachedTokens, queueMs }: FinishedRequest): void {
    this.#endedAt = performance.now();
    const decodeMs = this.#endedAt - this.#firstTokenAt;
    const numTokens = this.#tokens.length;
    this.#result = {
      text: this.#text,
      tokens: this.#tokens,
      finishReason: reason,
      stopReason,
      usage: { promptTokens: this.#spec!.prompt.length, completionTokens: numTokens, cachedTokens },
      timings: {
        queueMs,
        firstTokenMs: numTokens > 0 ? this.#firstTokenAt - this.#startedAt : 0,
        totalMs: this.#endedAt - this.#startedAt,
        tokensPerSecond: numTokens > 1 ? ((numTokens - 1) / decodeMs) * 1000 : 0,
      },
      ...(this.#spec!.promptLogprobs >= 0 ? { promptLogprobs: this.#promptLogprobs } : {}),
    };
    this.#release();
    for (const { resolve } of this.#waiters.splice(0)) resolve(this.#result);
    this.#notify();
  }

  #fail(error: InferxError): void {
    if (this.#isOver) return;
    this.#error = error;
    this.#release();
    for (const { reject } of this.#waiters.splice(0)) reject(error);
    this.#notify();
  }

  #notify(): void {
    for (const wake of this.#wakes.splice(0)) wake();
  }

  #release(): void {
    if (this.#onAbort) this.#signal?.removeEventListener("abort", this.#onAbort);
  }
}
