// Removes what need not be computed at each step: nodes whose operands are all constants, nodes equal to an earlier one, and nodes
// that nobody reads. Derived weights need no folding: their row sources (ir/weights.ts) are the load program already.
import type { Graph, Node, Value } from "../ir/graph.ts";
import { links } from "../ir/links.ts";
import { opOf } from "../ir/ops/index.ts";

export function fold(graph: Graph): Graph {
  const replaced = new Map<Value, Value>();
  const seen = new Map<string, Node>();
  const numbers = new Map<Value, number>();
  const numberOf = (value: Value | undefined): number => {
    if (!value) return -1;
    if (!numbers.has(value)) numbers.set(value, numbers.size);
    return numbers.get(value)!;
  };

  const nodes: Node[] = [];
  for (const original of graph.nodes) {
    const node = { ...original, operands: original.operands.map((value) => value && (replaced.get(value) ?? value)) };
    const constant = evaluate(node);
    const types = node.outputs.map(({ dtype }) => dtype);
    const key = JSON.stringify([node.op, node.operands.map(numberOf), node.attrs, node.program, types]);
    const equal = node.op === "sample" ? undefined : seen.get(key);
    if (constant) replaced.set(node.outputs[0]!, constant);
    else if (equal) for (const [i, output] of node.outputs.entries()) replaced.set(output, equal.outputs[i]!);
    else {
      seen.set(key, node);
      nodes.push(node);
    }
  }
  const outputs = new Map([...graph.outputs].map(([name, value]) => [name, replaced.get(value) ?? value]));
  return removeDead({ ...graph, nodes, outputs });
}

function evaluate(node: Node): Value | undefined {
  const { operands, results } = opOf(node.op).signature;
  const constants = node.operands.map((value) => (value?.kind === "constant" ? value : undefined));
  if (constants.includes(undefined) || results.length !== 1 || node.outputs[0]!.dtype !== "f32") return undefined;
  const tensors = operands.map(
    ({ name }, i) => [name, { dims: constants[i]!.shape, data: constants[i]!.data }] as const,
  );
  const [result] = opOf(node.op).evaluate(Object.fromEntries(tensors), node.attrs);
  return { kind: "constant", name: node.name, dtype: "f32", shape: result!.dims, data: result!.data as Float32Array };
}

/** A write to a cache lives if anything reads the cache afterwards in this step; `sample` also changes the history and always lives. */
function removeDead(graph: Graph): Graph {
  const { uses, isOutput } = links(graph);
  const live = new Set<Node>();
  for (const node of graph.nodes.toReversed()) {
    const read = node.outputs.some((output) => isOutput(output) || uses(output).some((user) => live.has(user)));
    if (read || node.op === "sample") live.add(node);
  }
  return { ...graph, nodes: graph.nodes.filter((node) => live.has(node)) };
}
