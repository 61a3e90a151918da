// A request on the engine's side: its text so far, and whether it has come to an end.
// Not here: tokens and blocks (the scheduler's sequence, under the same id).
import type { RequestSpec } from "./protocol.ts";

/** Bytes of tokens become text: only what is final comes out (lib/text). */
export interface TextSink {
  /** Text that the token made final. */
  push(token: number): string;
  /** What was held back, at the end. */
  flush(): string;
  /** Index of the stop string that was found, -1 before. */
  readonly stopIndex: number;
}

export interface RequestEnd {
  reason: "stop" | "length";
  stopReason: string | number | null;
}

export class EngineRequest {
  readonly spec: RequestSpec;
  readonly usesHistory: boolean;
  readonly #text: TextSink;
  readonly arrivedAt: number;
  queueMs = 0;
  started = false;

  constructor(spec: RequestSpec, text: TextSink, now: number) {
    this.spec = spec;
    this.#text = text;
    this.arrivedAt = now;
    const { repetition, presence, frequency } = spec.sampling;
    this.usesHistory = repetition !== 1 || presence !== 0 || frequency !== 0;
  }

  /** Takes a drawn token. A stop token's own text never appears. */
  accept(token: number): { text: string; end: RequestEnd | undefined } {
    const stop = this.spec.stopTokens.indexOf(token);
    if (stop >= 0) {
      const stopReason = stop < this.spec.numOwnStopTokens ? null : token;
      return { text: this.#text.flush(), end: { reason: "stop", stopReason } };
    }
    const text = this.#text.push(token);
    if (this.#text.stopIndex < 0) return { text, end: undefined };
    return { text, end: { reason: "stop", stopReason: this.spec.stop[this.#text.stopIndex]! } };
  }

  /** The end by `maxTokens`. */
  finish(): { text: string; end: RequestEnd } {
    const text = this.#text.flush();
    if (this.#text.stopIndex >= 0)
      return { text, end: { reason: "stop", stopReason: this.spec.stop[this.#text.stopIndex]! } };
    return { text, end: { reason: "length", stopReason: null } };
  }
}
