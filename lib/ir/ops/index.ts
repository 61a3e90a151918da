// All ops by name. Here a new op gets its line.
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
import * as reduce from "./reduce.ts";
import { addRmsNorm, rmsNorm } from "./rms-norm.ts";
import { rope, ropeTable } from "./rope.ts";
import { sample } from "./sample.ts";

const { add, mul, sub, div, max, exp, neg, recip, sqrt, rsqrt, tanh, scale, softcap } = elementwise;

export const ops: ReadonlyMap<string, Op> = new Map(
  [
    [embed, linear, rmsNorm, layerNorm, addRmsNorm, act, actMul, gatedAct, gather, ropeTable, rope],
    [kvWrite, qkNormRopeKvWrite, attention, moeRoute, moeLinear, moeCombine, columns, concat, sample],
    [add, mul, sub, div, max, exp, neg, recip, sqrt, rsqrt, tanh, scale, softcap],
    [reduce.reduceSum, reduce.reduceMax, reduce.softmax],
  ]
    .flat()
    .map((op) => [op.signature.op, op]),
);

/** @throws IX_PLAN when no op has that name. */
export function opOf(name: string): Op {
  const op = ops.get(name);
  if (!op) throw new InferxError("IX_PLAN", `there is no op "${name}"`);
  return op;
}
