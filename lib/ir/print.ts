// A graph as text: stable, one line per node, results numbered in order, so that two dumps can be compared line by line.
import { type Graph, type RowSource, type Value, weightRows } from "./graph.ts";
import { opOf } from "./ops/index.ts";

function typeText(value: Value): string {
  return `${value.dtype}[${value.shape.join(",")}]`;
}

function sourceText({ tensor, rowStart, rowCount, ropeHeads, transposed, addOne, scale }: RowSource): string {
  const marks = [
    transposed && " transposed",
    ropeHeads > 0 && ` rope_heads=${ropeHeads}`,
    scale !== 1 && ` *${scale}`,
    addOne && " +1",
  ];
  return `${tensor || "0"}[${rowStart}:${rowStart + rowCount}]${marks.filter(Boolean).join("")}`;
}

/** The sources of a weight that is not simply a whole tensor of its own name. */
function weightText(value: Value): string {
  if (value.kind !== "weight") return "";
  const text = value.sources.map(sourceText).join(" + ");
  return text === `${value.name}[0:${weightRows(value.shape)}]` ? "" : ` = ${text}`;
}

/** The whole graph, with a line per declared cache group, weight in use, node and output. */
export function printGraph(graph: Graph): string {
  const names = new Map<Value, string>();
  const lines: string[] = [];
  graph.groups.forEach(({ kind, window, layers, kvHeads, headDim }, i) => {
    lines.push(
      `cache ${i}: ${kind}${window > 0 ? `(${window})` : ""} layers=${layers} kv_heads=${kvHeads} head_dim=${headDim}`,
    );
  });

  const taken = new Set<string>();
  const nameOf = (value: Value): string => {
    const known = names.get(value);
    if (known !== undefined) return known;
    let name = { input: "$", weight: "@", constant: "#", cache: "&", result: "?" }[value.kind] + value.name;
    while (taken.has(name)) name += "'";
    taken.add(name);
    names.set(value, name);
    if (value.kind === "weight" || value.kind === "constant")
      lines.push(`${name}: ${typeText(value)}${weightText(value)}`);
    return name;
  };

  let results = 0;
  let program = "";
  for (const node of graph.nodes) {
    if (node.program !== program) lines.push(`${(program = node.program)}:`);
    const operands = node.operands.map((value) => (value ? nameOf(value) : "-"));
    const scalars = opOf(node.op).signature.scalars.map(({ name }) => `${name}=${node.attrs[name]}`);
    const outputs = node.outputs.map((value) => {
      names.set(value, value.kind === "cache" ? `&${value.name}` : `%${results++}`);
      return `${names.get(value)}: ${typeText(value)}`;
    });
    const kernel = node.kernel === undefined ? "" : ` kernel=${node.kernel}`;
    lines.push(`  ${outputs.join(", ")} = ${node.op}(${[...operands, ...scalars].join(", ")})${kernel} ; ${node.name}`);
  }
  for (const [name, value] of graph.outputs) lines.push(`output ${name}: ${nameOf(value)}`);
  return `${lines.join("\n")}\n`;
}
