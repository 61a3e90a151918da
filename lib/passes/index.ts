// All passes in their order: from an architecture's graph to the bytes of a plan, with a text of the graph after each.
import { InferxError } from "../base/errors.ts";
import { checkChoice, checkInt } from "../base/options.ts";
import type { Graph } from "../ir/graph.ts";
import { operandsOf } from "../ir/links.ts";
import { printGraph } from "../ir/print.ts";
import { withSampleProgram } from "../ir/sample-program.ts";
import { decodePlan } from "./decode.ts";
import { emit } from "./emit.ts";
import { fold } from "./fold.ts";
import { fuse } from "./fuse.ts";
import { lowerQuant } from "./lower-quant.ts";
import { narrow } from "./narrow.ts";
import { type Limits, planMemory, printMemory } from "./plan-memory.ts";
import { printPlan } from "./print-plan.ts";
import { availableOps, type KernelChoice, type KernelInfo, selectKernels } from "./select-kernels.ts";
import { verify } from "./verify.ts";

/** Widest head that attention kernels hold in their buffers. */
const maxHeadDim = 256;

export interface LowerOptions {
  /** What the device reported. */
  kernels: readonly KernelInfo[];
  limits: Limits;
  /** Default "f32"; "fast" lets block formats compute in int8 and bf16 weights in bf16, and keeps what it can in bf16 between nodes. */
  numerics?: "f32" | "fast";
  /** Default "kv_f32". "kv_bf16" needs blocks of 32 or 64 tokens and even head widths. */
  cacheType?: "kv_f32" | "kv_bf16";
  /** Only kernels whose results for a token do not depend on the other tokens of its step; default false. */
  deterministic?: boolean;
  /** Ops that may run on another backend's kernels; default none. */
  fallbackOps?: readonly string[];
  /** Most likely tokens whose log-probabilities a step can report; default 20. */
  topLogprobs?: number;
  /** The plan runs only where the addon has the same; default 0. */
  buildId?: number;
}

export interface Lowered {
  /** After the last rewrite: its nodes, views aside, are the plan's steps. */
  graph: Graph;
  plan: Uint8Array;
  /** Makes the text after each pass, by the pass's name, in order. */
  dumps: ReadonlyMap<string, () => string>;
  stats: { nodes: number; weights: number; arenaBytes: number; inputBytes: number; planBytes: number };
}

/**
 * Runs the passes.
 * @throws IX_PLAN, IX_UNSUPPORTED_FORMAT, IX_NO_KERNEL as the passes do; IX_INVALID_ARGUMENT for limits out of range.
 */
export function lower(graph: Graph, options: LowerOptions): Lowered {
  const { kernels, limits, deterministic = false, fallbackOps = [], topLogprobs = 20, buildId = 0 } = options;
  const numerics = checkChoice("numerics", options.numerics ?? "f32", ["f32", "fast"]);
  const cacheType = checkChoice("cacheType", options.cacheType ?? "kv_f32", ["kv_f32", "kv_bf16"]);
  for (const [name, value] of Object.entries(limits)) checkInt(`limits.${name}`, value, 1, 2 ** 24);
  checkInt("topLogprobs", topLogprobs, 1, 1024);
  if (
    cacheType === "kv_bf16" &&
    (![32, 64].includes(limits.blockTokens) || graph.groups.some(({ headDim }) => headDim % 2 !== 0))
  ) {
    throw new InferxError(
      "IX_INVALID_ARGUMENT",
      "cacheType kv_bf16 needs blocks of 32 or 64 tokens and even head widths",
    );
  }
  for (const { headDim } of graph.groups) {
    if (headDim % 2 !== 0 || headDim > maxHeadDim) {
      throw new InferxError(
        "IX_UNSUPPORTED_ARCHITECTURE",
        `head width ${headDim}: attention kernels take even widths up to ${maxHeadDim}`,
      );
    }
  }
  const choice: KernelChoice = { kernels, numerics, cacheType, deterministic, fallbackOps: new Set(fallbackOps) };
  const dumps = new Map<string, () => string>();

  const passes: readonly (readonly [string, (graph: Graph) => Graph])[] = [
    ["verify", verify],
    ["lower-quant", lowerQuant],
    ["fuse", (g) => verify(fuse(g, availableOps(choice)))],
    ["narrow", (g) => narrow(g, choice)],
    ["select-kernels", (g) => selectKernels(g, choice)],
    ["fold", (g) => verify(fold(g))],
  ];
  let lowered = withSampleProgram(graph, topLogprobs);
  for (const [name, pass] of passes) {
    const result = pass(lowered);
    dumps.set(name, () => printGraph(result));
    lowered = result;
  }
  const memory = planMemory(lowered, limits);
  dumps.set("plan-memory", () => printMemory(lowered, memory));
  const plan = emit(lowered, { kernels, memory, limits, cacheType, buildId });
  dumps.set("emit", () => printPlan(decodePlan(plan)));
  const weights = operandsOf(lowered).filter((value) => value.kind === "weight").length;
  const { arenaBytes, inputBytes } = memory;
  return {
    graph: lowered,
    plan,
    dumps,
    stats: { nodes: lowered.nodes.length, weights, arenaBytes, inputBytes, planBytes: plan.length },
  };
}
