// The matrix: what every public method does in every awkward state. matrix.test.ts fails when a method has no row.
import { expect } from "vitest";
import { type Condition, idle, type State } from "./conditions.ts";

export interface NotApplicable {
  reason: string;
}
export type Cell = NotApplicable | ((name: string, condition: Condition) => Promise<void>);

export const notApplicable = (reason: string): NotApplicable => ({ reason });

/** The call gives what it gives on an idle model. */
const works: Cell = async (name, condition) => {
  expect(await condition(name)).toEqual(await idle(name));
};

/** The call ends, and the process with it, as `condition` demands; there is no value to compare. */
const ends: Cell = async (name, condition) => {
  await condition(name);
};

const fails =
  (code: string): Cell =>
  async (name, condition) => {
    await expect(condition(name)).rejects.toMatchObject({ code });
  };

type Row = Record<State, Cell>;

/** What holds for most methods; a row names its exceptions. */
const usual: Row = {
  loading: works,
  busy: works,
  aborted: works,
  "out of blocks": works,
  disposed: fails("IX_DISPOSED"),
  "worker thread": works,
  "process exit": ends,
};
const takesSignal = { aborted: fails("IX_ABORTED") } satisfies Partial<Row>;
/** Needs nothing that dispose() frees: the checkpoint's text and plan stay. */
const staysUsable = { disposed: works } satisfies Partial<Row>;
const standsAlone = notApplicable("does not touch the disposed model");

export const cells: Record<string, Row> = {
  "Model.load": { ...usual, ...takesSignal, disposed: standsAlone },
  "Model.plan": { ...usual, ...takesSignal, disposed: standsAlone },
  "Model.generate": { ...usual, ...takesSignal },
  "Model.chat": { ...usual, ...takesSignal },
  "Model.tokenize": { ...usual, ...staysUsable },
  "Model.detokenize": { ...usual, ...staysUsable },
  "Model.renderChat": { ...usual, ...staysUsable },
  "Model.stats": usual,
  "Model.dispose": { ...usual, disposed: works },
  "Model.[Symbol.asyncDispose]": { ...usual, disposed: works },
  "KVCache.constructor": { ...usual, disposed: standsAlone },
  "KVCache.usage": usual,
  "KVCache.fork": { ...usual, ...takesSignal },
  "KVCache.pin": usual,
  "KVCache.clear": usual,
  "Scheduler.constructor": { ...usual, ...staysUsable },
  "Scheduler.add": { ...usual, ...takesSignal },
  "Scheduler.stats": usual,
  "Scheduler.on": usual,
  "Scheduler.dispose": { ...usual, ...staysUsable },
  "Scheduler.[Symbol.asyncDispose]": { ...usual, ...staysUsable },
  "Generation.then": { ...usual, ...takesSignal },
  "Generation.[Symbol.asyncIterator]": { ...usual, ...takesSignal },
  "Generation.abort": { ...usual, disposed: works },
};
