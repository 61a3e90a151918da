// Keeps float results in bf16 where the node that makes one and all that read it have kernels for that: half the bytes, and products
// read them as they lie. Columns of a result change with it. What the host reads stays f32; so does, for want of kernels, the residual
// stream.
import type { Graph, Node, Value } from "../ir/graph.ts";
import { links } from "../ir/links.ts";
import { type KernelChoice, kernelFinder, viewOps } from "./select-kernels.ts";

/** Returns the graph itself where numerics are exact, or where nothing becomes narrower. */
export function narrow(graph: Graph, choice: KernelChoice): Graph {
  if (choice.numerics === "f32") return graph;
  const { find, typeOf } = kernelFinder(graph, choice);
  const { uses, isOutput } = links(graph);
  const narrower = new Map<Value, Value>();
  const typeNow = (value: Value) => narrower.get(value)?.dtype ?? typeOf(value);
  const withViews = (value: Value): Value[] => {
    const views = uses(value).filter(({ op }) => viewOps.has(op));
    return [value, ...views.flatMap(({ outputs }) => outputs.flatMap(withViews))];
  };

  /** Whether a result was not yet narrow and could be made so. */
  const makeNarrow = (node: Node, output: Value): boolean => {
    const values = withViews(output);
    if (output.kind !== "result" || typeNow(output) !== "f32" || values.some(isOutput)) return false;
    const readers = values.flatMap(uses).filter(({ op }) => !viewOps.has(op));
    for (const value of values) narrower.set(value, { ...value, dtype: "bf16" } as Value);
    const served = [node, ...readers].every((other) => find(other, typeNow) !== undefined);
    if (!served) for (const value of values) narrower.delete(value);
    return served;
  };
  const makers = graph.nodes.filter(({ op }) => !viewOps.has(op));
  // a kernel may need its result narrow to take a narrow operand, or the other way round
  for (let grows = true; grows; ) {
    grows = false;
    for (const node of makers) for (const output of node.outputs) grows = makeNarrow(node, output) || grows;
  }
  if (narrower.size === 0) return graph;
  const replaced = <T extends Value | undefined>(value: T) => (value && ((narrower.get(value) as T) ?? value)) as T;
  const nodes = graph.nodes.map((node) => {
    return { ...node, operands: node.operands.map(replaced), outputs: node.outputs.map(replaced) };
  });
  return { ...graph, nodes };
}
