// Who makes a value and who reads it: recomputed by each pass that asks, never stored.
import type { Graph, Node, Value } from "./graph.ts";

export interface Links {
  /** The node that makes a value; undefined for inputs, weights, constants and caches in their first state. */
  producer(value: Value): Node | undefined;
  /** The nodes that read it, in order; a graph output is not among them. */
  uses(value: Value): readonly Node[];
  isOutput(value: Value): boolean;
  /** The one of several nodes that comes last. */
  last(nodes: readonly Node[]): Node;
  /** Read by exactly this node and nothing else. */
  onlyUse(value: Value, node: Node): boolean;
}

export function links(graph: Graph): Links {
  const producers = new Map<Value, Node>();
  const uses = new Map<Value, Node[]>();
  const order = new Map<Node, number>();
  for (const node of graph.nodes) {
    order.set(node, order.size);
    for (const output of node.outputs) producers.set(output, node);
    for (const value of node.operands) {
      if (!value) continue;
      const list = uses.get(value);
      if (!list) uses.set(value, [node]);
      else if (list.at(-1) !== node) list.push(node);
    }
  }
  const outputs = new Set(graph.outputs.values());
  return {
    producer: (value) => producers.get(value),
    uses: (value) => uses.get(value) ?? [],
    isOutput: (value) => outputs.has(value),
    last: (nodes) => nodes.reduce((a, b) => (order.get(a)! > order.get(b)! ? a : b)),
    onlyUse: (value, node) => uses.get(value)?.length === 1 && uses.get(value)![0] === node && !outputs.has(value),
  };
}

/** The values that a graph's nodes read, each once, in the order of first use. */
export function operandsOf(graph: Graph): Value[] {
  const values = new Set<Value>();
  for (const node of graph.nodes) for (const value of node.operands) if (value) values.add(value);
  return [...values];
}

/** The graph with values exchanged in operands and outputs. */
export function substitute(graph: Graph, replace: (value: Value) => Value): Graph {
  const nodes = graph.nodes.map((node) => ({
    ...node,
    operands: node.operands.map((value) => value && replace(value)),
  }));
  return { ...graph, nodes, outputs: new Map([...graph.outputs].map(([name, value]) => [name, replace(value)])) };
}
