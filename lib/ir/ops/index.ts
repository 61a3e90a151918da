// All ops by name. Here a new op gets its place.
import { InferxError } from "../../base/errors.ts";
import { act, actMul, gatedAct } from "./act.ts";
import { attention } from "./attention.ts";
import { columns, concat } from "./columns.ts";
import * as elementwise from "./elementwise.ts";
import { embed } from "./embed.ts";
import { gather } from "./gather.ts";
import { kvWrite, qkNormRopeKvWrite } from "./kv-write.ts";
import { layerNorm } from "./layer-norm.ts";
import { linear } from "./linear.ts";
import { moeCombine, moeLinear, moeRoute } from "./moe.ts";
import type { Op } from "./op.ts";
import { reduceMax, reduceSum, softmax } from "./reduce.ts";
import { addRmsNorm, rmsNorm } from "./rms-norm.ts";
import { rope, ropeTable } from "./rope.ts";
import { sample } from "./sample.ts";

/** By the file in which they lie. */
const files: Readonly<Record<string, readonly Op[]>> = {
  act: [act, actMul, gatedAct],
  attention: [attention],
  columns: [columns, concat],
  elementwise: Object.values(elementwise),
  embed: [embed],
  gather: [gather],
  "kv-write": [kvWrite, qkNormRopeKvWrite],
  "layer-norm": [layerNorm],
  linear: [linear],
  moe: [moeCombine, moeLinear, moeRoute],
  reduce: [reduceMax, reduceSum, softmax],
  "rms-norm": [rmsNorm, addRmsNorm],
  rope: [rope, ropeTable],
  sample: [sample],
};

const entries = Object.entries(files).flatMap(([file, list]) =>
  list.map((op) => ({ file, op, name: op.signature.op })),
);

export const ops: ReadonlyMap<string, Op> = new Map(entries.map(({ name, op }) => [name, op]));

/** @throws IX_PLAN when no op has that name. */
export function opOf(name: string): Op {
  const op = ops.get(name);
  if (!op) throw new InferxError("IX_PLAN", `there is no op "${name}"`);
  return op;
}

/** Where an op lies, for messages; undefined when there is none of that name. */
export function opFile(name: string): string | undefined {
  const entry = entries.find((e) => e.name === name);
  return entry && `lib/ir/ops/${entry.file}.ts`;
}
