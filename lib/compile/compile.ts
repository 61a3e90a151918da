// A checkpoint and a device's kernels to a plan: builds the architecture's graph, runs the passes, and says what the result will take.
// Not here: loading weights, sizing the cache (engine).
import { InferxError } from "../base/errors.ts";
import type { Checkpoint } from "../formats/checkpoint.ts";
import { createBuilder } from "../ir/builder.ts";
import type { Graph } from "../ir/graph.ts";
import { type Architecture, findArchitecture } from "../models/index.ts";
import { decodePlan, type Plan } from "../passes/decode.ts";
import { lower } from "../passes/index.ts";
import type { KernelInfo } from "../passes/select-kernels.ts";
import { describeTensors, type LoadOrigin, type LoadTensor, loadOrigin, locateTensors, originKey } from "./tensors.ts";

export interface CompileOptions {
  kernels: readonly KernelInfo[];
  numerics: "f32" | "fast";
  cacheDtype: "f32" | "bf16";
  /** Results of a sequence do not depend on what else runs; default false. */
  deterministic?: boolean;
  maxStepTokens: number;
  maxSequences: number;
  /** Rows of a step that can get logits. Default: one for each sequence that decodes, and one more for a newcomer. */
  maxLogitRows?: number;
  contextLength: number;
  tokensPerBlock: number;
  /** The caller's own, which come before the built-in ones. */
  architectures: readonly Architecture[];
  /** Bytes of one panel of a packed layout. */
  panelBytes: (layout: string, columns: number) => number;
  /** Rows in a panel. */
  panelRows: number;
}

export interface CacheGroupDeclaration {
  kind: "full" | "window";
  window?: number;
  layers: number[];
  tokensPerBlock: number;
  bytesPerBlock: number;
  dtype: string;
}

export interface CompiledModel {
  /** After the passes; what `interpret` runs to check the plan. */
  graph: Graph;
  plan: Uint8Array;
  /** Makes the text after each pass, by name. */
  dumps: ReadonlyMap<string, () => string>;
  maxStepTokens: number;
  maxSequences: number;
  layout: {
    inputBytes: number;
    maxSampleRows: number;
    inputs: ReadonlyMap<string, { offset: number; elements: number }>;
  };
  outputs: string[];
  groups: CacheGroupDeclaration[];
  tensors: LoadTensor[];
  origin: LoadOrigin;
  /** Equal for plans that pack the same tensors of the same files in the same way. */
  loadKey: unknown;
  weightBytes: number;
  activationBytes: number;
  parameters: number;
  vocabularySize: number;
  hiddenSize: number;
  layers: number;
}

/** Entries of logit bias that one step has room for, per sequence. */
const biasPerSequence = 1024;

/** The graph of a checkpoint's architecture. @throws IX_UNSUPPORTED_ARCHITECTURE, IX_MODEL_CONFIG, IX_MODEL_FORMAT */
export function buildGraph(checkpoint: Checkpoint, architectures: readonly Architecture[]): Graph {
  const builder = createBuilder(describeTensors(checkpoint));
  findArchitecture(checkpoint.architecture, architectures).build(builder, checkpoint.config);
  return builder.finish();
}

/** @throws as `buildGraph`, and IX_UNSUPPORTED_FORMAT, IX_NO_KERNEL, IX_INVALID_ARGUMENT */
export function compileModel(checkpoint: Checkpoint, options: CompileOptions): CompiledModel {
  const graph = buildGraph(checkpoint, options.architectures);
  const { maxStepTokens, maxSequences, contextLength, tokensPerBlock } = options;
  const maxSampleRows = options.maxLogitRows ?? maxSequences + 1;
  const lowered = lower(graph, {
    kernels: options.kernels,
    numerics: options.numerics,
    cacheType: `kv_${options.cacheDtype}`,
    deterministic: options.deterministic ?? false,
    limits: {
      maxTokens: maxStepTokens,
      maxSequences,
      maxLogitRows: maxSampleRows,
      maxRunning: maxSequences,
      contextTokens: contextLength,
      blockTokens: tokensPerBlock,
      maxBias: maxSequences * biasPerSequence,
    },
  });
  const plan = decodePlan(lowered.plan);
  const named = new Set(plan.weights.flatMap(({ sources }) => sources.map(({ tensor }) => tensor)));
  const logits = graph.outputs.get("logits");
  if (!logits) throw new InferxError("IX_UNSUPPORTED_ARCHITECTURE", `${checkpoint.architecture} gives no logits`);
  return {
    graph: lowered.graph,
    plan: lowered.plan,
    dumps: lowered.dumps,
    maxStepTokens,
    maxSequences,
    layout: {
      inputBytes: plan.inputBytes,
      maxSampleRows,
      inputs: new Map(plan.inputs.map(({ name, offset, elements }) => [name, { offset, elements }])),
    },
    outputs: plan.outputs.map(({ name }) => name),
    groups: plan.groups.map(({ kind, window, layers, blockBytes, type }) => ({
      kind,
      ...(kind === "window" ? { window } : {}),
      layers: Array.from({ length: layers }, (_, layer) => layer),
      tokensPerBlock,
      bytesPerBlock: blockBytes,
      dtype: type,
    })),
    tensors: locateTensors(checkpoint, named),
    origin: loadOrigin(checkpoint),
    loadKey: [originKey(checkpoint), plan.weights],
    weightBytes: plan.weights.reduce((sum, weight) => sum + packedBytes(weight, options), 0),
    activationBytes: plan.arenaBytes + plan.inputBytes + plan.states.reduce((sum, s) => sum + s.elements * 4, 0),
    parameters: [...checkpoint.tensors.values()].reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0),
    vocabularySize: logits.shape[1] as number,
    hiddenSize: Number(checkpoint.config.hidden_size ?? checkpoint.config.n_embd ?? 0),
    layers: Number(checkpoint.config.num_hidden_layers ?? checkpoint.config.n_layer ?? 0),
  };
}

/** Bytes that a weight takes on the device: whole panels, each expert's of its own. */
function packedBytes({ layout, dims }: Plan["weights"][number], { panelBytes, panelRows }: CompileOptions): number {
  const elements = dims.reduce((a, b) => a * b, 1);
  if (layout === "f32") return elements * 4;
  const columns = dims.at(-1)!;
  const stacks = dims.length === 3 ? dims[0]! : 1;
  return stacks * Math.ceil(elements / columns / stacks / panelRows) * panelBytes(layout, columns);
}
