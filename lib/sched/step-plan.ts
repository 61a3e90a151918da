// What one step computes, as flat lists: filled by the scheduler, copied into the executor's staged inputs by the engine.
// Not here: tensors and launch sizes. A plan object is used again once its step has completed.
import { IntList } from "../cache/int-list.ts";
import type { Sequence } from "./sequence.ts";

export class StepPlan {
  stepId = 0;
  /** Index i of the per-sequence lists. A sequence may be done by the time that the step completes. */
  readonly sequences: Sequence[] = [];
  readonly rows = new IntList();
  readonly firstPositions = new IntList();
  readonly numNewTokens = new IntList();
  /** 1: a token is sampled from the sequence's last logits row, for position firstPosition + numNewTokens. */
  readonly samples = new IntList();
  readonly numLogits = new IntList();
  readonly admissions = new IntList();
  /** [T] sequence after sequence; -1 - row: the token last sampled for that row, which only the device knows. */
  readonly tokens = new IntList();
  /** [S] indices into `tokens`: the rows that get logits. */
  readonly rowIndex = new IntList();
  /** [samples] indices into `rowIndex`: the logits to sample from, in the order of `sequences`. */
  readonly sampleIndex = new IntList();
  /** (group, row, column, block)*, to be applied before the forward; valid until the next `schedule()`. */
  tableDeltas: Int32Array = new Int32Array(0);
  /** (op, group, from, to)* of lib/cache/block-ops.ts, to be executed in this order before the forward; valid as long. */
  blockOps: Int32Array = new Int32Array(0);
  /** That they move between device and host. */
  swapBytes = 0;
  /** Sum over new tokens of the positions that each one attends to (unbounded by windows). */
  contextTokens = 0;

  get numSequences(): number {
    return this.sequences.length;
  }

  get numTokens(): number {
    return this.tokens.length;
  }

  clear(stepId: number): void {
    this.stepId = stepId;
    this.sequences.length = 0;
    this.contextTokens = 0;
    for (const list of [this.rows, this.firstPositions, this.numNewTokens, this.samples, this.numLogits]) list.clear();
    for (const list of [this.admissions, this.tokens, this.rowIndex, this.sampleIndex]) list.clear();
  }

  /** The next `numNew` tokens of a sequence, whose slots are reserved; moves the sequence's counters on. */
  add(sequence: Sequence, numNew: number): void {
    const first = sequence.numScheduled;
    const end = first + numNew;
    const total = sequence.numKnown + sequence.numPending;
    const samples = end === total && total < sequence.promptLength + sequence.maxNewTokens;
    this.sequences.push(sequence);
    this.rows.push(sequence.row);
    this.firstPositions.push(first);
    this.numNewTokens.push(numNew);
    this.admissions.push(sequence.admission);
    this.samples.push(samples ? 1 : 0);

    // Only the newest token can be unknown and not scheduled yet.
    if (first < sequence.numKnown) this.tokens.append(sequence.tokens, first, Math.min(end, sequence.numKnown));
    if (end > sequence.numKnown) this.tokens.push(-1 - sequence.row);
    const firstLogits = Math.max(first, sequence.nextLogits);
    for (let position = firstLogits; position < end; position++)
      this.rowIndex.push(this.tokens.length - end + position);
    this.numLogits.push(Math.max(0, end - firstLogits));
    if (samples) this.sampleIndex.push(this.rowIndex.length - 1);

    this.contextTokens += numNew * (first + (numNew + 1) / 2);
    sequence.nextLogits = Math.max(sequence.nextLogits, end);
    sequence.numScheduled = end;
    sequence.lastStep = this.stepId;
    sequence.lastFirstPosition = first;
    if (samples) sequence.numPending++;
  }
}
