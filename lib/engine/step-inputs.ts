// Writes a step plan into the executor's input buffer and command list. Fixed offsets, no allocation per step.
import { InferxError } from "../base/errors.ts";
import { invariant } from "../base/invariant.ts";
import { blockOp } from "../cache/block-ops.ts";
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

// csrc/core/row_state.h, Command; those of whole blocks are in lib/cache/block-ops.ts
const command = {
  tableEntry: 1,
  clearHistory: 3,
  promptHistory: 4,
  answerHistory: 5,
  logitBias: 6,
} as const;

/** Staged by name; by number of their cache group also `slots`. Indices are in 32-bit words. */
const stagedInputs = [
  "tokens",
  "positions",
  "rope_row",
  "row_index",
  "seq_start",
  "seq_context",
  "seq_row",
  "sample_row",
  "row_state",
  "position",
  "seed",
  "sample_index",
  "target",
  "temperature",
  "top_k",
  "top_p",
  "min_p",
  "repetition",
  "presence",
  "frequency",
  "num_logprobs",
  "mask_row",
] as const;
type StagedInput = (typeof stagedInputs)[number];

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
  readonly #at: Record<StagedInput, number>;

  constructor(layout: InputLayout, cache: CacheState) {
    this.buffer = new ArrayBuffer(layout.inputBytes);
    this.#i32 = new Int32Array(this.buffer);
    this.#f32 = new Float32Array(this.buffer);
    this.#layout = layout;
    this.#cache = cache;
    const place = (name: string): number => {
      const input = layout.inputs.get(name);
      if (!input) throw new InferxError("IX_PLAN", `the plan has no input ${name}`);
      return input.offset / 4;
    };
    this.#at = Object.fromEntries(stagedInputs.map((name) => [name, place(name)])) as Record<StagedInput, number>;
    this.#slots = cache.groups.map((_, g) => place(`slots.${g}`));
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
    const { tableDeltas, blockOps } = plan;
    for (let i = 0; i < tableDeltas.length; i += 4) {
      this.commands.push(command.tableEntry);
      this.commands.append(tableDeltas, i, i + 4);
    }
    for (let i = 0; i < blockOps.length; i += 4) {
      this.commands.append(blockOps, i, i + (blockOps[i] === blockOp.poison ? 3 : 4));
    }
    const at = this.#at;
    this.#i32.set(plan.tokens.view(), at.tokens);
    this.#i32.set(plan.rowIndex.view(), at.row_index);
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
    this.#i32[at.seq_start + plan.numSequences] = token;
    invariant(logits <= this.#layout.maxSampleRows, `${logits} rows of logits in a step`);
    return [token, plan.numSequences, logits];
  }

  /** Fills the buffer with tokens of no sequence, which change nothing. Returns T, R, S. */
  fillIdle(count: number): [number, number, number] {
    for (const start of [this.#at.tokens, this.#at.positions, this.#at.rope_row])
      this.#i32.fill(0, start, start + count);
    for (const start of this.#slots) this.#i32.fill(-1, start, start + count);
    this.#i32[this.#at.seq_start] = 0;
    return [count, 0, 0];
  }

  #fillSequence(plan: StepPlan, i: number, token: number, count: number, ropeRow: number): void {
    const i32 = this.#i32;
    const at = this.#at;
    const row = plan.rows.at(i);
    const first = plan.firstPositions.at(i);
    i32[at.seq_start + i] = token;
    i32[at.seq_context + i] = first + count;
    i32[at.seq_row + i] = row;
    for (let k = 0; k < count; k++) {
      i32[at.positions + token + k] = first + k;
      i32[at.rope_row + token + k] = ropeRow;
    }
    for (let g = 0; g < this.#slots.length; g++) {
      const { spec, maxColumns, table } = this.#cache.groups[g]!;
      const width = spec.tokensPerBlock;
      const slots = this.#slots[g]! + token;
      for (let k = 0; k < count; k++) {
        const position = first + k;
        const block = table[row * maxColumns + Math.floor(position / width)]!;
        i32[slots + k] = block * width + (position % width);
      }
    }
  }

  #fillSamples(plan: StepPlan, i: number, start: number, { spec, usesHistory }: EngineRequest): void {
    const i32 = this.#i32;
    const f32 = this.#f32;
    const at = this.#at;
    const { sampling } = spec;
    const count = plan.numLogits.at(i);
    const sequence = plan.sequences[i]!;
    const end = plan.firstPositions.at(i) + plan.numNewTokens.at(i);
    for (let k = 0; k < count; k++) {
      const s = start + k;
      const next = end - count + k + 1;
      const draws = k === count - 1 && plan.samples.at(i) === 1;
      const row = draws ? plan.rows.at(i) : -1;
      i32[at.sample_row + s] = row;
      i32[at.row_state + s] = usesHistory ? row : -1;
      i32[at.position + s] = next;
      i32[at.sample_index + s] = 0;
      // The last position of a request without an answer has no next token: any will do, it is not reported.
      i32[at.target + s] = draws ? -1 : next < sequence.promptLength ? sequence.tokens[next]! : 0;
      i32[at.num_logprobs + s] = draws ? spec.logprobs : spec.promptLogprobs;
      i32[at.mask_row + s] = -1;
      i32[at.top_k + s] = sampling.topK;
      i32[at.seed + 2 * s] = sampling.seed[0];
      i32[at.seed + 2 * s + 1] = sampling.seed[1];
      f32[at.temperature + s] = sampling.temperature;
      f32[at.top_p + s] = sampling.topP;
      f32[at.min_p + s] = sampling.minP;
      f32[at.repetition + s] = sampling.repetition;
      f32[at.presence + s] = sampling.presence;
      f32[at.frequency + s] = sampling.frequency;
    }
  }

  #tokenList(kind: number, row: number, tokens: Int32Array, from: number, to: number): void {
    this.commands.push(kind);
    this.commands.push(row);
    this.commands.push(to - from);
    this.commands.append(tokens, from, to);
  }
}
