// Collects what a step brought and makes one message of it.
import { entryWidth, type FinishedRequest, type StepOutput } from "./protocol.ts";

/** Log-probability outputs of a step: [S], and [S, top] alternatives. */
export interface LogprobRows {
  logprobs: Float32Array;
  topTokens: Int32Array;
  topLogprobs: Float32Array;
  top: number;
}

export class StepOutputs {
  #entries: number[] = [];
  #text = "";
  #rows: number[] = [];
  #finished: FinishedRequest[] = [];

  /** `row`: row of the step's log-probability outputs, -1 if none. */
  add(id: number, token: number, text: string, row: number): void {
    this.#text += text;
    this.#entries.push(id, token, this.#text.length);
    this.#rows.push(row);
  }

  finish(finished: FinishedRequest): void {
    this.#finished.push(finished);
  }

  get isEmpty(): boolean {
    return this.#entries.length === 0 && this.#finished.length === 0;
  }

  message(rows: LogprobRows | undefined): StepOutput {
    const output: StepOutput = {
      type: "step",
      entries: Float64Array.from(this.#entries),
      text: this.#text,
      finished: this.#finished,
    };
    if (rows) this.#addLogprobs(output, rows);
    this.#entries = [];
    this.#text = "";
    this.#rows = [];
    this.#finished = [];
    return output;
  }

  #addLogprobs(output: StepOutput, { logprobs, topTokens, topLogprobs, top }: LogprobRows): void {
    const count = this.#entries.length / entryWidth;
    output.logprobs = new Float32Array(count);
    output.topTokens = new Int32Array(count * top).fill(-1);
    output.topLogprobs = new Float32Array(count * top);
    for (const [i, row] of this.#rows.entries()) {
      if (row < 0) continue;
      output.logprobs[i] = logprobs[row]!;
      output.topTokens.set(topTokens.subarray(row * top, (row + 1) * top), i * top);
      output.topLogprobs.set(topLogprobs.subarray(row * top, (row + 1) * top), i * top);
    }
  }
}
