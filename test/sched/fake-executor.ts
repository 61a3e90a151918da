// A device made of integers: each KV slot holds a hash of the whole token history up to its position, so that a wrong block,
// a missing copy or an early reuse changes what attention reads. It verifies every read of every step against the truth.
import { blockOp } from "../../lib/cache/block-ops.ts";
import type { CacheState } from "../../lib/cache/kv-cache.ts";
import type { Sequence } from "../../lib/sched/sequence.ts";
import type { StepPlan } from "../../lib/sched/step-plan.ts";

export interface FakeRequest {
  prompt: Int32Array;
  maxNewTokens: number;
  salt: string;
  seed: number;
}

export const vocabulary = 97;
export const stopToken = 5;

function mix(hash: number, value: number): number {
  const h = Math.imul(hash ^ value ^ 0x5bd1e995, 0x9e3779b1);
  return (Math.imul(h ^ (h >>> 15), 0x85ebca6b) ^ (h >>> 13)) | 0;
}

function saltHash(salt: string): number {
  let hash = 17;
  for (const character of salt) hash = mix(hash, character.charCodeAt(0));
  return hash;
}

const nextToken = (hash: number, seed: number): number => (mix(hash, seed) >>> 0) % vocabulary;

/** What a request answers when it is the only one in the world; ends with the stop token or at maxNewTokens. */
export function textAlone({ prompt, maxNewTokens, salt, seed }: FakeRequest): number[] {
  let hash = saltHash(salt);
  for (const token of prompt) hash = mix(hash, token);
  const text: number[] = [];
  while (text.length < maxNewTokens && text.at(-1) !== stopToken) {
    text.push(nextToken(hash, seed));
    hash = mix(hash, text.at(-1)!);
  }
  return text;
}

export interface FakeStep {
  stepId: number;
  sequences: Sequence[];
  rows: Int32Array;
  first: Int32Array;
  count: Int32Array;
  samples: Int32Array;
  numLogits: Int32Array;
  tokens: Int32Array;
  rowIndex: Int32Array;
  sampleIndex: Int32Array;
  deltas: Int32Array;
  ops: Int32Array;
  contextTokens: number;
  swapBytes: number;
  /** (group, block, generation)* that the step reads or writes. */
  touched: number[];
}

/** The truth about a sequence: hashes[p + 1] is the history up to position p. */
interface History {
  seed: number;
  tokens: number[];
  hashes: number[];
  /** Positions whose logits were computed, in order. */
  logits: number[];
}

function fail(message: string): never {
  throw new Error(`fake executor: ${message}`);
}

export class FakeExecutor {
  readonly inFlight: FakeStep[] = [];
  readonly histories = new Map<number, History>();
  readonly #cache: CacheState;
  readonly #tables: Int32Array[];
  readonly #slots: Int32Array[];
  readonly #hostSlots: Int32Array[];
  readonly #widths: number[];
  readonly #lastToken = new Int32Array(4096).fill(-1);

  constructor(cache: CacheState) {
    this.#cache = cache;
    this.#tables = cache.groups.map((group) => new Int32Array(group.table.length).fill(-7));
    this.#widths = cache.groups.map(({ spec }) => (spec.kind === "state" ? 1 : spec.tokensPerBlock));
    const memory = (numBlocks: number, g: number) => new Int32Array(numBlocks * this.#widths[g]!).fill(-1);
    this.#slots = cache.groups.map(({ pool }, g) => memory(pool.numBlocks, g));
    this.#hostSlots = cache.groups.map(({ host }, g) => memory(host.numSlots, g));
  }

  addRequest(id: number, { prompt, salt, seed }: FakeRequest): void {
    const hashes = [saltHash(salt)];
    for (const token of prompt) hashes.push(mix(hashes.at(-1)!, token));
    this.histories.set(id, { seed, tokens: [...prompt], hashes, logits: [] });
  }

  /** Copies the plan, as staged inputs do; checks that nothing that steps in flight touch has been given to somebody else. */
  submit(plan: StepPlan): void {
    for (const step of this.inFlight) {
      for (let i = 0; i < step.touched.length; i += 3) {
        const [g, block, generation] = step.touched.slice(i, i + 3) as [number, number, number];
        if (this.#cache.groups[g]!.pool.generation(block) !== generation) {
          fail(`block ${block} of group ${g} is allocated again while step ${step.stepId} is in flight`);
        }
      }
      step.rows.forEach((row, i) => {
        const index = plan.rows.view().indexOf(row);
        if (index >= 0 && plan.sequences[index] !== step.sequences[i]) fail(`row ${row} is reused while in flight`);
      });
    }
    if (new Set(plan.rows.view()).size !== plan.numSequences) fail("a row occurs twice in a step");
    const touched: number[] = [];
    const touch = (g: number, block: number) => touched.push(g, block, this.#cache.groups[g]!.pool.generation(block));
    const ops = plan.blockOps.slice();
    for (let i = 0; i < ops.length; i += 4) if (ops[i] === blockOp.copy) touch(ops[i + 1]!, ops[i + 2]!);
    for (const row of plan.rows.view()) {
      this.#cache.groups.forEach((group, g) => {
        const offset = row * group.maxColumns;
        for (let c = group.firstColumn(row); c < group.endColumn(row); c++) touch(g, group.table[offset + c]!);
      });
    }
    this.inFlight.push({
      stepId: plan.stepId,
      sequences: plan.sequences.slice(),
      rows: plan.rows.view().slice(),
      first: plan.firstPositions.view().slice(),
      count: plan.numNewTokens.view().slice(),
      samples: plan.samples.view().slice(),
      numLogits: plan.numLogits.view().slice(),
      tokens: plan.tokens.view().slice(),
      rowIndex: plan.rowIndex.view().slice(),
      sampleIndex: plan.sampleIndex.view().slice(),
      deltas: plan.tableDeltas.slice(),
      ops,
      contextTokens: plan.contextTokens,
      swapBytes: plan.swapBytes,
      touched,
    });
  }

  /** Runs the oldest step; returns its sampled tokens. */
  wait(): { step: FakeStep; sampled: Int32Array } {
    const step = this.inFlight.shift() ?? fail("wait without a step in flight");
    for (let i = 0; i < step.deltas.length; i += 4) {
      const [g, row, column, block] = [...step.deltas.subarray(i, i + 4)] as [number, number, number, number];
      this.#tables[g]![row * this.#cache.groups[g]!.maxColumns + column] = block;
    }
    for (let i = 0; i < step.ops.length; i += 4) this.#runBlockOp(step.ops.subarray(i, i + 4));
    const offsets = step.count.map((_, i) => step.count.subarray(0, i).reduce((sum, count) => sum + count, 0));
    const written = this.#cache.groups.map(() => new Map<number, number>());
    for (const [i, sequence] of step.sequences.entries()) this.#write(step, sequence, i, offsets[i]!, written);
    const read = this.#cache.groups.map(() => new Map<number, number>());
    for (const [i, sequence] of step.sequences.entries()) this.#attend(step, sequence, i, read);
    written.forEach((blocks, g) => {
      for (const [block, owner] of blocks) {
        const reader = read[g]!.get(block) ?? owner;
        if (reader !== owner)
          fail(`sequence ${owner} writes block ${block} of group ${g}, which sequence ${reader} reads`);
      }
    });
    return { step, sampled: this.#sample(step, offsets) };
  }

  #runBlockOp([op, group, from, to]: Int32Array): void {
    const g = group!;
    const width = this.#widths[g]!;
    const [device, host] = [this.#slots[g]!, this.#hostSlots[g]!];
    const read = (memory: Int32Array, block: number) => {
      if (block < 0 || block * width >= memory.length)
        fail(`block operation ${op} of group ${g}: ${block} is out of range`);
      return memory.subarray(block * width, (block + 1) * width);
    };
    if (op === blockOp.copy) read(device, to!).set(read(device, from!));
    else if (op === blockOp.swapOut) read(host, to!).set(read(device, from!));
    else if (op === blockOp.swapIn) read(device, to!).set(read(host, from!));
    else if (op === blockOp.poison) read(device, from!).fill(-2);
    else fail(`unknown block operation ${op}`);
  }

  /** Once all steps are done: nothing is left in blocks that were given up, except where that is still to be executed. */
  checkPoison(): void {
    const pending = this.#cache.ops.view();
    this.#cache.groups.forEach(({ pool }, g) => {
      for (let block = 0; block < pool.numBlocks; block++) {
        if (!pool.isFree(block) || pool.generation(block) === 0) continue;
        const awaits = pending.some(
          (op, i) => i % 4 === 0 && op === blockOp.poison && pending[i + 1] === g && pending[i + 2] === block,
        );
        const slots = this.#slots[g]!.subarray(block * this.#widths[g]!, (block + 1) * this.#widths[g]!);
        if (!awaits && slots.some((slot) => slot !== -2)) fail(`free block ${block} of group ${g} is not poisoned`);
      }
    });
  }

  #blockAt(g: number, row: number, position: number): number {
    const { maxColumns, spec, pool } = this.#cache.groups[g]!;
    const column = spec.kind === "state" ? 0 : Math.floor(position / spec.tokensPerBlock);
    const block = this.#tables[g]![row * maxColumns + column]!;
    if (block < 0 || block >= pool.numBlocks) fail(`row ${row}, position ${position}, group ${g}: block ${block}`);
    return block;
  }

  #write(step: FakeStep, sequence: Sequence, i: number, offset: number, written: Map<number, number>[]): void {
    const history = this.histories.get(sequence.id)!;
    const row = step.rows[i]!;
    const first = step.first[i]!;
    const end = first + step.count[i]!;
    for (let position = first; position < end; position++) {
      const entry = step.tokens[offset + position - first]!;
      if (entry < 0 && -1 - entry !== row) fail(`sequence ${sequence.id} reads the last token of row ${-1 - entry}`);
      if (entry < 0 && sequence.needsHost) fail(`sequence ${sequence.id} runs ahead of its host`);
      const token = entry < 0 ? this.#lastToken[row]! : entry;
      if (token !== history.tokens[position]) {
        fail(`sequence ${sequence.id}, position ${position}: token ${token}, history has ${history.tokens[position]}`);
      }
    }
    this.#cache.groups.forEach(({ spec }, g) => {
      if (spec.kind === "state") {
        const block = this.#blockAt(g, row, 0);
        if (first > 0 && this.#slots[g]![block] !== history.hashes[first])
          fail(`sequence ${sequence.id} has a wrong state`);
        this.#slots[g]![block] = history.hashes[end]!;
        this.#own(g, block, sequence.id, written);
        return;
      }
      for (let position = first; position < end; position++) {
        const block = this.#blockAt(g, row, position);
        this.#slots[g]![block * this.#widths[g]! + (position % this.#widths[g]!)] = history.hashes[position + 1]!;
        this.#own(g, block, sequence.id, written);
      }
    });
  }

  #own(g: number, block: number, id: number, written: Map<number, number>[]): void {
    const owner = written[g]!.get(block) ?? id;
    if (owner !== id) fail(`block ${block} of group ${g} is written by sequences ${owner} and ${id} in a step`);
    written[g]!.set(block, id);
  }

  #attend(step: FakeStep, sequence: Sequence, i: number, read: Map<number, number>[]): void {
    const history = this.histories.get(sequence.id)!;
    const end = step.first[i]! + step.count[i]!;
    this.#cache.groups.forEach(({ spec }, g) => {
      if (spec.kind === "state") return;
      const from = spec.kind === "window" ? Math.max(0, step.first[i]! - spec.window! + 1) : 0;
      for (let position = from; position < end; position++) {
        const block = this.#blockAt(g, step.rows[i]!, position);
        const slot = this.#slots[g]![block * this.#widths[g]! + (position % this.#widths[g]!)];
        if (slot !== history.hashes[position + 1]) {
          fail(
            `sequence ${sequence.id} reads a foreign KV at position ${position} of ${end}, group ${g}, block ${block}`,
          );
        }
        // Readers of a block may be many; one that differs from the writer is what matters.
        const seen = read[g]!.get(block);
        if (seen === undefined || seen === sequence.id) read[g]!.set(block, sequence.id);
        else read[g]!.set(block, -1);
      }
    });
  }

  #sample(step: FakeStep, offsets: Int32Array): Int32Array {
    const sampled: number[] = [];
    let logitsAt = 0;
    step.sequences.forEach((sequence, i) => {
      const history = this.histories.get(sequence.id)!;
      const end = step.first[i]! + step.count[i]!;
      for (let k = 0; k < step.numLogits[i]!; k++) {
        history.logits.push(step.first[i]! + step.rowIndex[logitsAt + k]! - offsets[i]!);
      }
      logitsAt += step.numLogits[i]!;
      if (step.samples[i] === 0) return;
      const sampledRow = step.rowIndex[step.sampleIndex[sampled.length]!]!;
      if (sampledRow !== offsets[i]! + step.count[i]! - 1)
        fail(`sequence ${sequence.id} samples from row ${sampledRow}`);
      if (history.tokens.length !== end) fail(`sequence ${sequence.id} samples position ${end} again`);
      const token = nextToken(history.hashes[end]!, history.seed);
      history.tokens.push(token);
      history.hashes.push(mix(history.hashes.at(-1)!, token));
      this.#lastToken[step.rows[i]!] = token;
      sampled.push(token);
    });
    return Int32Array.from(sampled);
  }
}
