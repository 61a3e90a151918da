// Collects what a step brought and makes one message of it.
import type { FinishedRequest, StepOutput } from "./protocol.ts";

export class StepOutputs {
  #ids: number[] = [];
  #tokens: number[] = [];
  #text = "";
  #textEnds: number[] = [];
  #rows: number[] = [];
  #finished: FinishedRequest[] = [];

  /** `row`: row of the step's log-probability outputs, -1 if none. */
  add(id: number, token: number, text: string, row: number): void {
    this.#ids.push(id);
    this.#tokens.push(token);
    this.#text += text;
    this.#textEnds.push(this.#text.length);
    this.#rows.push(row);
  }

  finish(finished: FinishedRequest): void {
    this.#finished.push(finished);
  }

  get isEmpty(): boolean {
    return this.#ids.length === 0 && this.#finished.length === 0;
  }

  /** Log-probabilities are those of the step's sample rows: [S], and [S, top] alternatives. */
  message(
    logprobs: Float32Array | undefined,
    topTokens: Int32Array,
    topLogprobs: Float32Array,
    top: number,
  ): StepOutput {
    const count = this.#ids.length;
    const output: StepOutput = {
      type: "step",
      ids: Float64Array.from(this.#ids),
      tokens: Int32Array.from(this.#tokens),
      text: this.#text,
      textEnds: Uint32Array.from(this.#textEnds),
      finished: this.#finished,
    };
    if (logprobs) {
      output.logprobs = new Float32Array(count);
      output.topTokens = new Int32Array(count * top).fill(-1);
      output.topLogprobs = new Float32Array(count * top);
      this.#rows.forEach((row, i) => {
        if (row < 0) return;
        output.logprobs![i] = logprobs[row]!;
        output.topTokens!.set(topTokens.subarray(row * top, (row + 1) * top), i * top);
        output.topLogprobs!.set(topLogprobs.subarray(row * top, (row + 1) * top), i * top);
      });
    }
    this.#ids = [];
    this.#tokens = [];
    this.#text = "";
    this.#textEnds = [];
    this.#rows = [];
    this.#finished = [];
    return output;
  }
}
