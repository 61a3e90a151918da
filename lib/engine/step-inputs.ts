// Writes a step plan into the executor's input buffer and command list. Fixed offsets, no allocation per step.
import { InferxError } from "../base/errors.ts";
import { invariant } from "../base/invariant.ts";
import { IntList } from "../cache/int-list.ts";
import type { CacheState } from "../cache/kv-cache.ts";
import type { StepPlan } from "../sched/step-plan.ts";
import type { EngineRequest } from "./request.ts";

/** Where the plan expects its inputs. */
export interface InputLayout {
  inputBytes: number;
  /** Most rows that get logits in a step. */
  maxSampleRows: number;
  inputs: ReadonlyMap<string, { offset: number; elements: number }>;
}

// csrc/core/executor.h, Command
const command = {
  tableEntry: 1,
  copyBlock: 2,
  clearHistory: 3,
  promptHistory: 4,
  answerHistory: 5,
  logitBias: 6,
} as const;

const f32Bits = new Float32Array(1);
const bits = new Int32Array(f32Bits.buffer);

export class StepInputs {
  readonly buffer: ArrayBuffer;
  readonly commands = new IntList(1024);
  readonly #i32: Int32Array;
  readonly #f32: Float32Array;
  readonly #layout: InputLayout;
  readonly #cache: CacheState;
  readonly #slots: number[];
  // Rows whose history or bias list was used by an earlier sequence.
  readonly #dirtyRows = new Set<number>();
  readonly #at: Record<string, number> = {};

  constructor(layout: InputLayout, cache: CacheState) {
    this.buffer = new ArrayBuffer(layout.inputBytes);
    this.#i32 = new Int32Array(this.buffer);
    this.#f32 = new Float32Array(this.buffer);
    this.#layout = layout;
    this.#cache = cache;
    for (const [name, { offset }] of layout.inputs) this.#at[name] = offset / 4;
    this.#slots = cache.groups.map((_, g) => this.#offset(`slots.${g}`));
  }

  /** A sequence got a row: what the device keeps per row is set anew. */
  admit(request: EngineRequest, row: number, tokens: Int32Array, promptLength: number, numKnown: number): void {
    const { sampling } = request.spec;
    if (this.#dirtyRows.delete(row)) {
      this.commands.push(command.clearHistory);
      this.commands.push(row);
    }
    if (request.usesHistory) {
      this.#tokenList(command.promptHistory, row, tokens, 0, promptLength);
      this.#tokenList(command.answerHistory, row, tokens, promptLength, numKnown);
      this.#dirtyRows.add(row);
    }
    if (sampling.bias.length > 0) {
      this.commands.push(command.logitBias);
      this.commands.push(row);
      this.commands.push(sampling.bias.length);
      for (const [token, value] of sampling.bias) {
        f32Bits[0] = value;
        this.commands.push(token);
        this.commands.push(bits[0]!);
      }
      this.#dirtyRows.add(row);
    }
  }

  /** Fills the buffer; `requestOf` gives each sequence's request. Returns T, R, S. */
  fill(plan: StepPlan, requestOf: (id: number) => EngineRequest): [number, number, number] {
    const { tableDeltas, blockCopies } = plan;
    for (let i = 0; i < tableDeltas.length; i += 4) {
      this.commands.push(command.tableEntry);
      this.commands.append(tableDeltas, i, i + 4);
    }
    for (let i = 0; i < blockCopies.length; i += 3) {
      this.commands.push(command.copyBlock);
      this.commands.append(blockCopies, i, i + 3);
    }
    this.#i32.set(plan.tokens.view(), this.#offset("tokens"));
    this.#i32.set(plan.rowIndex.view(), this.#offset("row_index"));
    let token = 0;
    let logits = 0;
    for (let i = 0; i < plan.numSequences; i++) {
      const request = requestOf(plan.sequences[i]!.id);
      const count = plan.numNewTokens.at(i);
      this.#fillSequence(plan, i, token, count, request.spec.ropeRow);
      this.#fillSamples(plan, i, logits, request);
      token += count;
      logits += plan.numLogits.at(i);
    }
    this.#i32[this.#offset("seq_start") + plan.numSequences] = token;
    invariant(logits <= this.#layout.maxSampleRows, `${logits} rows of logits in a step`);
    return [token, plan.numSequences, logits];
  }

  #fillSequence(plan: StepPlan, i: number, token: number, count: number, ropeRow: number): void {
    const row = plan.rows.at(i);
    const first = plan.firstPositions.at(i);
    this.#i32[this.#offset("seq_start") + i] = token;
    this.#i32[this.#offset("seq_context") + i] = first + count;
    this.#i32[this.#offset("seq_row") + i] = row;
    const positions = this.#offset("positions") + token;
    const ropeRows = this.#offset("rope_row") + token;
    for (let k = 0; k < count; k++) {
      this.#i32[positions + k] = first + k;
      this.#i32[ropeRows + k] = ropeRow;
    }
    for (let g = 0; g < this.#slots.length; g++) {
      const group = this.#cache.groups[g]!;
      const width = group.spec.tokensPerBlock;
      const table = row * group.maxColumns;
      const slots = this.#slots[g]! + token;
      for (let k = 0; k < count; k++) {
        const position = first + k;
        this.#i32[slots + k] = group.table[table + Math.floor(position / width)]! * width + (position % width);
      }
    }
  }

  #fillSamples(plan: StepPlan, i: number, start: number, request: EngineRequest): void {
    const { sampling, logprobs, promptLogprobs } = request.spec;
    const count = plan.numLogits.at(i);
    const sequence = plan.sequences[i]!;
    const end = plan.firstPositions.at(i) + plan.numNewTokens.at(i);
    for (let k = 0; k < count; k++) {
      const s = start + k;
      const position = end - count + k;
      const draws = k === count - 1 && plan.samples.at(i) === 1;
      const row = draws ? plan.rows.at(i) : -1;
      this.#set("sample_row", s, row);
      this.#set("row_state", s, draws && request.usesHistory ? row : -1);
      this.#set("position", s, position + 1);
      this.#set("sample_index", s, 0);
      // The last position of a request without an answer has no next token: any will do, it is not reported.
      this.#set("target", s, draws ? -1 : position + 1 < sequence.promptLength ? sequence.tokens[position + 1]! : 0);
      this.#set("num_logprobs", s, draws ? logprobs : promptLogprobs);
      this.#set("mask_row", s, -1);
      this.#set("top_k", s, sampling.topK);
      this.#set("seed", 2 * s, sampling.seed[0]);
      this.#set("seed", 2 * s + 1, sampling.seed[1]);
      this.#setFloat("temperature", s, sampling.temperature);
      this.#setFloat("top_p", s, sampling.topP);
      this.#setFloat("min_p", s, sampling.minP);
      this.#setFloat("repetition", s, sampling.repetition);
      this.#setFloat("presence", s, sampling.presence);
      this.#setFloat("frequency", s, sampling.frequency);
    }
  }

  #tokenList(kind: number, row: number, tokens: Int32Array, from: number, to: number): void {
    this.commands.push(kind);
    this.commands.push(row);
    this.commands.push(to - from);
    this.commands.append(tokens, from, to);
  }

  #offset(name: string): number {
    const at = this.#at[name];
    if (at === undefined) throw new InferxError("IX_PLAN", `the plan has no input ${name}`);
    return at;
  }
  #set(name: string, index: number, value: number): void {
    this.#i32[this.#at[name]! + index] = value;
  }
  #setFloat(name: string, index: number, value: number): void {
    this.#f32[this.#at[name]! + index] = value;
  }
}
