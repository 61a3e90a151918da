// The oracle: runs a graph with the reference evaluations, before or after any pass. Packed layouts mean nothing here: a weight's
// numbers come from its sources. Passes must not change what this returns, kernels must equal it.
import { InferxError } from "../base/errors.ts";
import { type Graph, type Program, programs, type Value } from "./graph.ts";
import { opOf } from "./ops/index.ts";
import type { Tensor } from "./ops/op.ts";
import { assembleWeight, weightKey } from "./weights.ts";

export interface InterpretOptions {
  /** The checkpoint's tensors as float32, by the names in the weights' sources. */
  tensor: (name: string) => Float32Array;
  /** Inputs by name, persistent ones included; those that no node reads may be missing. */
  inputs: ReadonlyMap<string, Tensor>;
  /** State between steps; made by `createCaches` once, changed by each step. */
  caches: CacheTensors;
  program?: Program;
  /** Called with each node's results, in order. */
  trace?: (name: string, results: readonly Tensor[]) => void;
}

/** One tensor per layer, by group. */
export type CacheTensors = readonly (readonly Tensor[])[];

/** Empty caches of `blocks` blocks. */
export function createCaches(graph: Graph, blocks: number, blockTokens: number): CacheTensors {
  return graph.groups.map(({ layers, kvHeads, headDim }) => {
    const dims = [blocks, blockTokens, 2, kvHeads, headDim];
    return Array.from({ length: layers }, () => ({ dims, data: new Float32Array(dims.reduce((a, b) => a * b)) }));
  });
}

/** The nearest values with the upper half of a single's bits, ties to even; NaN stays NaN. */
function roundToBf16(data: Tensor["data"]): Float32Array {
  const rounded = Float32Array.from(data);
  const bits = new Uint32Array(rounded.buffer);
  for (let i = 0; i < bits.length; i++) {
    if (!Number.isNaN(rounded[i])) bits[i] = (bits[i]! + 0x7fff + ((bits[i]! >>> 16) & 1)) & 0xffff0000;
  }
  return rounded;
}

/** Keeps assembled weights between steps. */
const assembled = new WeakMap<InterpretOptions["tensor"], Map<string, Tensor>>();

/**
 * Runs one step of a program and returns the outputs that it made, by name.
 * @throws IX_INVALID_ARGUMENT naming an input that is missing.
 */
export function interpret(graph: Graph, options: InterpretOptions): Map<string, Tensor> {
  const { program = programs[0], inputs, caches, tensor, trace } = options;
  const results = new Map<Value, Tensor>();
  const weights = assembled.get(tensor) ?? new Map<string, Tensor>();
  assembled.set(tensor, weights);

  const load = (value: Value): Tensor => {
    switch (value.kind) {
      case "weight": {
        const key = weightKey(value);
        const known = weights.get(key) ?? { dims: value.shape, data: assembleWeight(value, tensor) };
        weights.set(key, known);
        return known;
      }
      case "constant":
        return { dims: value.shape, data: value.data };
      case "cache":
        return caches[value.group]![value.layer]!;
      default: {
        const found = value.kind === "input" ? inputs.get(value.name) : results.get(value);
        if (!found)
          throw new InferxError("IX_INVALID_ARGUMENT", `interpret: ${value.kind} "${value.name}" has no value`);
        return found;
      }
    }
  };

  for (const node of graph.nodes) {
    if (node.program !== program) continue;
    const op = opOf(node.op);
    const operands: Record<string, Tensor> = {};
    op.signature.operands.forEach(({ name }, i) => {
      const value = node.operands[i];
      if (value) operands[name] = load(value);
    });
    const made = op.evaluate(operands, node.attrs).map((result, i) => {
      return node.outputs[i]!.dtype === "bf16" ? { ...result, data: roundToBf16(result.data) } : result;
    });
    for (const [i, value] of node.outputs.entries()) results.set(value, made[i]!);
    trace?.(node.name, made);
  }
  const outputs = [...graph.outputs].filter(([, value]) => results.has(value));
  return new Map(outputs.map(([name, value]) => [name, results.get(value)!]));
}
