// A request's tokens in the scheduler, and how far they are known, scheduled and computed.
// Not here: text, stop strings, sampling rules; the engine keeps those under the same id.
import { checkInt, checkNumber } from "../base/options.ts";
import type { HeldSequence } from "../cache/held-sequences.ts";
import type { Tenant } from "./tenants.ts";

export interface SequenceSpec {
  /** Made by the caller, never reused. */
  id: number;
  /** At least one token; ids are the caller's to check against the vocabulary. Copied. */
  prompt: Int32Array;
  /** 0: only compute the prompt (scores, embeddings). */
  maxNewTokens: number;
  /** Higher goes first (policy `priority`). */
  priority?: number;
  /** On any clock that the caller likes (policy `deadline`). */
  deadlineMs?: number;
  /** Whose share it counts against (policy `fair`). */
  tenant?: string;
  /** Separates prefixes that look alike but are not: adapter, tenant, rope variant. */
  salt?: string;
  /** Logits of all rows of the prompt, not only of the last one. */
  promptLogits?: boolean;
  /** Its next token depends on host work (mask, processor): never scheduled ahead of what the host has seen. */
  needsHost?: boolean;
  /** Id of a sequence whose KV is shared as far as the tokens agree (n > 1, user-level forks). */
  forkOf?: number;
}

export class Sequence {
  readonly id: number;
  readonly promptLength: number;
  readonly maxNewTokens: number;
  readonly priority: number;
  readonly deadlineMs: number;
  readonly salt: string;
  readonly needsHost: boolean;
  /** Order of `add`. */
  readonly arrival: number;
  /** Set by the scheduler when it accepts the sequence. */
  tenant!: Tenant;
  /** Whose KV to share when it starts to run, and how much of it. */
  forkSource: Sequence | undefined;
  forkLength = 0;
  /** What the cache keeps of it while it is preempted; undefined: it is computed again. */
  held: HeldSequence | undefined;

  state: "waiting" | "running" | "done" = "waiting";
  /** Row of the block tables while running. */
  row = -1;
  /** Counts admissions, so that a step in flight can tell whether its row is still this one's. */
  admission = 0;
  /** The last step that it takes part in, and where its new tokens began. */
  lastStep = 0;
  lastFirstPosition = 0;

  /** Known to the host: prompt and generated. */
  numKnown: number;
  /** Sampled on the device by steps in flight, not known yet. */
  numPending = 0;
  /** With KV computed or in flight. */
  numScheduled = 0;
  /** With KV computed by completed steps. */
  numComputed = 0;
  /** Of the prompt, found in the cache at the first admission. */
  numCached = 0;
  /** The first position whose logits have not been asked for; below it none are needed again after a preemption. */
  nextLogits: number;
  #tokens: Int32Array;

  constructor(spec: SequenceSpec, arrival: number) {
    this.id = checkInt("id", spec.id, 0);
    this.promptLength = checkInt("prompt.length", spec.prompt.length, 1);
    this.maxNewTokens = checkInt("maxNewTokens", spec.maxNewTokens, 0);
    this.priority = checkNumber("priority", spec.priority ?? 0);
    this.deadlineMs =
      spec.deadlineMs === undefined ? Number.POSITIVE_INFINITY : checkNumber("deadlineMs", spec.deadlineMs);
    this.salt = spec.salt ?? "";
    this.needsHost = spec.needsHost ?? false;
    this.arrival = arrival;
    this.numKnown = this.promptLength;
    this.nextLogits = spec.promptLogits ? 0 : this.maxNewTokens > 0 ? this.promptLength - 1 : this.promptLength;
    this.#tokens = new Int32Array(this.promptLength + Math.min(this.maxNewTokens, 64));
    this.#tokens.set(spec.prompt);
  }

  /** All known tokens are in [0, numKnown); the rest is spare. Replaced when it grows. */
  get tokens(): Int32Array {
    return this.#tokens;
  }

  get numGenerated(): number {
    return this.numKnown - this.promptLength;
  }

  /** Tokens that ever need KV: the last one that is sampled does not. */
  get numToHold(): number {
    return this.promptLength + Math.max(0, this.maxNewTokens - 1);
  }

  /** Computed tokens catch up with known ones (and with those that only the device knows). */
  get numToCompute(): number {
    return Math.min(this.numKnown + this.numPending, this.numToHold) - this.numScheduled;
  }

  /** How many tokens may be taken from elsewhere: at least one is computed, and all that need logits. */
  get numShareable(): number {
    return Math.min(this.numKnown - 1, this.nextLogits);
  }

  /** Not preempted, not in this step already, and not waiting for the host to see its last token. */
  isReadyFor(step: number): boolean {
    return this.state === "running" && this.lastStep !== step && !(this.needsHost && this.numPending > 0);
  }

  /** Nothing left to compute or to sample. */
  get isComplete(): boolean {
    return this.maxNewTokens > 0 ? this.numGenerated === this.maxNewTokens : this.numComputed === this.promptLength;
  }

  /** Shares the KV of a sequence as far as the tokens agree, at least `least` of them, if that one runs by then. */
  forkFrom(source: Sequence, least = 1): void {
    const longest = Math.min(source.numKnown, this.numShareable);
    let length = 0;
    while (length < longest && source.tokens[length] === this.#tokens[length]) length++;
    if (length < least || source.salt !== this.salt) return;
    this.forkSource = source;
    this.forkLength = length;
  }

  start(row: number, numShared: number): void {
    this.state = "running";
    this.row = row;
    this.numScheduled = this.numComputed = numShared;
    if (this.admission++ === 0) this.numCached = numShared;
    this.forkSource = this.held = undefined;
  }

  /** Without a row: what was computed is lost (unless it is held), what is known stays. */
  leave(state: "waiting" | "done"): void {
    this.state = state;
    this.row = -1;
    this.numScheduled = this.numComputed = 0;
  }

  append(token: number): void {
    if (this.numKnown === this.#tokens.length) {
      const grown = new Int32Array(Math.min(this.#tokens.length * 2, this.promptLength + this.maxNewTokens));
      grown.set(this.#tokens);
      this.#tokens = grown;
    }
    this.#tokens[this.numKnown++] = token;
  }
}
