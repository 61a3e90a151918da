// Refuses a graph that is not what its nodes say: types, shapes, order, linear cache chains, weights whose rows are not all there.
// Runs before and after the passes that rewrite.
import { InferxError } from "../base/errors.ts";
import {
  type CacheValue,
  type Graph,
  type Node,
  programs,
  type Value,
  type WeightValue,
  weightRows,
} from "../ir/graph.ts";
import { fitsType, isNarrow, operandShapes } from "../ir/graph-state.ts";
import { opOf } from "../ir/ops/index.ts";
import { inferResults } from "../ir/ops/op.ts";
import { viewOps } from "./select-kernels.ts";

/**
 * Returns the graph itself.
 * @throws IX_PLAN naming the node.
 */
export function verify(graph: Graph): Graph {
  const made = new Set<Value>();
  const inputs = new Set<Value>(graph.inputs);
  const cacheStates = new Map<string, CacheValue>();
  let program = 0;
  for (const node of graph.nodes) {
    const refuse = (why: string) =>
      new InferxError("IX_PLAN", `${node.name} (${node.op}): ${why}`, { node: node.name });
    const place = programs.indexOf(node.program);
    if (place < program) throw refuse(`a node of "${node.program}" comes after "${programs[program]}"`);
    program = place;
    checkTypes(node, refuse);
    for (const value of node.operands) {
      if (value?.kind === "result" && !made.has(value)) throw refuse(`${value.name} is read before it is made`);
      if (value?.kind === "input" && !inputs.has(value)) throw refuse(`input ${value.name} is not among the graph's`);
      if (value?.kind === "weight") checkWeight(value, refuse);
      if (value?.kind === "constant" && value.data.length !== value.shape.reduce((a, b) => a * b, 1)) {
        throw refuse(`constant ${value.name} has ${value.data.length} values for [${value.shape}]`);
      }
      if (value?.kind === "cache") checkCache(value, graph, made, cacheStates, refuse);
    }
    for (const output of node.outputs) {
      if (made.has(output) || output.kind === "input" || output.kind === "weight" || output.kind === "constant") {
        throw refuse(`${output.name} is made twice`);
      }
      made.add(output);
      if (output.kind === "cache") cacheStates.set(`${output.group}.${output.layer}`, output);
    }
  }
  for (const [name, value] of graph.outputs) {
    if (value.kind !== "result" || !made.has(value))
      throw new InferxError("IX_PLAN", `output ${name} is not the result of a node`);
    if (isNarrow(value)) throw new InferxError("IX_PLAN", `output ${name} is ${value.dtype}, which hosts do not read`);
  }
  return graph;
}

type Refuse = (why: string) => InferxError;

function checkTypes(node: Node, refuse: Refuse): void {
  const op = opOf(node.op);
  const { operands, results } = op.signature;
  if (node.operands.length > operands.length)
    throw refuse(`${node.operands.length} operands, the op has ${operands.length}`);
  operands.forEach(({ name, type, optional }, i) => {
    const value = node.operands[i];
    if (!value && !optional) throw refuse(`operand ${name} is missing`);
    if (value && !fitsType(value, type))
      throw refuse(`operand ${name} is ${value.kind} ${value.dtype}, expected ${type}`);
  });
  let expected: ReturnType<typeof inferResults>;
  try {
    expected = inferResults(op, operandShapes(op, node.operands), node.attrs);
  } catch (error) {
    throw refuse(error instanceof Error ? error.message : String(error));
  }
  if (node.outputs.length !== results.length)
    throw refuse(`${node.outputs.length} results, the op has ${results.length}`);
  expected.forEach(({ dtype, shape }, i) => {
    const output = node.outputs[i]!;
    const sameType = output.dtype === dtype || (dtype === "f32" && isNarrow(output));
    if (!sameType || String(output.shape) !== String(shape)) {
      throw refuse(`result ${i} is ${output.dtype}[${output.shape}], the op gives ${dtype}[${shape}]`);
    }
    if (viewOps.has(node.op) && output.dtype !== node.operands[0]!.dtype) {
      throw refuse(`a view as ${output.dtype} of ${node.operands[0]!.dtype}`);
    }
    const { inPlaceOf } = results[i]!;
    const before = node.operands[operands.findIndex((o) => o.name === inPlaceOf)];
    if (inPlaceOf === undefined) return;
    const same =
      output.kind === "cache" &&
      before?.kind === "cache" &&
      output.group === before.group &&
      output.layer === before.layer;
    if (!same) throw refuse(`result ${i} is not the cache that the node changes`);
  });
}

function checkWeight({ name, shape, sources }: WeightValue, refuse: Refuse): void {
  const rows = sources.reduce((sum, source) => sum + source.rowCount, 0);
  const sound = sources.every(
    ({ rowStart, rowCount, scale }) => rowStart >= 0 && rowCount > 0 && Number.isFinite(scale),
  );
  if (!sound || rows !== weightRows(shape)) throw refuse(`weight ${name} [${shape}] has sources for ${rows} rows`);
}

/** Reads and writes of a layer's cache go through its newest state, so that no other order of the nodes is possible. */
function checkCache(
  value: CacheValue,
  graph: Graph,
  made: ReadonlySet<Value>,
  states: Map<string, CacheValue>,
  refuse: Refuse,
): void {
  const { group, layer } = value;
  if (!(layer >= 0 && layer < (graph.groups[group]?.layers ?? 0)))
    throw refuse(`there is no cache layer ${group}.${layer}`);
  const newest = states.get(`${group}.${layer}`);
  if (newest === undefined && !made.has(value)) states.set(`${group}.${layer}`, value);
  else if (newest !== value) throw refuse(`${value.name} was changed by an earlier node; this one reads an old state`);
}
