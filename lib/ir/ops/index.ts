// All ops by name. Here a new op gets its line.
import { InferxError } from "../../base/errors.ts";
import { act } from "./act.ts";
import { actMul } from "./act-mul.ts";
import { addRmsNorm } from "./add-rms-norm.ts";
import { attention } from "./attention.ts";
import { columns } from "./columns.ts";
import { concat } from "./concat.ts";
import * as elementwise from "./elementwise.ts";
import { embed } from "./embed.ts";
import { gatedAct } from "./gated-act.ts";
import { gather } from "./gather.ts";
import { kvWrite } from "./kv-write.ts";
import { layerNorm } from "./layer-norm.ts";
import { linear } from "./linear.ts";
import { moeCombine } from "./moe-combine.ts";
import { moeLinear } from "./moe-linear.ts";
import { moeRoute } from "./moe-route.ts";
import type { Op } from "./op.ts";
import { qkNormRopeKvWrite } from "./qk-norm-rope-kv-write.ts";
import * as reduce from "./reduce.ts";
import { rmsNorm } from "./rms-norm.ts";
import { rope } from "./rope.ts";
import { ropeTable } from "./rope-table.ts";
import { sample } from "./sample.ts";
import { softmax } from "./softmax.ts";

const own = [
  ...[act, actMul, addRmsNorm, attention, columns, concat, embed, gatedAct, gather, kvWrite, layerNorm, linear],
  ...[moeCombine, moeLinear, moeRoute, qkNormRopeKvWrite, rmsNorm, rope, ropeTable, sample, softmax],
];

/** Ops of one line share a file. */
const families: Readonly<Record<string, readonly Op[]>> = {
  elementwise: Object.values(elementwise),
  reduce: Object.values(reduce),
};

export const ops: ReadonlyMap<string, Op> = new Map(
  [...own, ...Object.values(families).flat()].map((op) => [op.signature.op, op]),
);

/** @throws IX_PLAN when no op has that name. */
export function opOf(name: string): Op {
  const op = ops.get(name);
  if (!op) throw new InferxError("IX_PLAN", `there is no op "${name}"`);
  return op;
}

/** Where an op lies, for messages; undefined when there is none of that name. */
export function opFile(name: string): string | undefined {
  const op = ops.get(name);
  if (!op) return undefined;
  const family = Object.keys(families).find((file) => families[file]!.includes(op));
  return `lib/ir/ops/${family ?? name.replaceAll("_", "-")}.ts`;
}
