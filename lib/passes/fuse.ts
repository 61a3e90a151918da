// Rewrites groups of nodes to ops that do the same in one pass. Each rule looks at one node and says what it would put in place of
// which nodes; new nodes make the very values that the removed ones made, so nothing else in the graph changes.
import type { Graph, Node, Value, WeightValue } from "../ir/graph.ts";
import { type Links, links } from "../ir/links.ts";
import { concatRows, zeroRows } from "../ir/weights.ts";

interface Rewrite {
  removed: readonly Node[];
  inserted: readonly Node[];
  /** One of the removed nodes: where the new ones go. */
  at: Node;
}

type Rule = (node: Node, graph: Links) => Rewrite | undefined;

/** "a.q.weight", "a.k.weight" -> "a.{q,k}.weight" */
function joinNames(names: readonly string[]): string {
  const parts = names.map((name) => name.split("."));
  const first = parts[0]!;
  let head = 0;
  while (head < first.length - 1 && parts.every((p) => p[head] === first[head])) head++;
  let tail = 0;
  while (
    tail < first.length - head - 1 &&
    parts.every((p) => p.length > head + tail + 1 && p.at(-1 - tail) === first.at(-1 - tail))
  )
    tail++;
  const middles = parts.map((p) => p.slice(head, p.length - tail).join("."));
  return [...first.slice(0, head), `{${middles}}`, ...first.slice(first.length - tail)].join(".");
}

/** One linear for several that read the same x with weights of one format; a missing bias becomes zeros. */
function mergeLinears(linears: readonly Node[]): Node {
  const weights = linears.map((node) => node.operands[1] as WeightValue);
  const biases = linears.map((node) => node.operands[2] as WeightValue | undefined);
  const name = joinNames(weights.map((w) => w.name));
  const filled = biases.map((bias, i) => bias ?? zeroRows([weights[i]!.shape[0]!], "f32"));
  const bias = biases.some(Boolean) ? concatRows(filled, `${name}.bias`) : undefined;
  const x = linears[0]!.operands[0]!;
  const weight = concatRows(weights, name);
  const output: Value = { kind: "result", name, dtype: "f32", shape: [x.shape[0]!, weight.shape[0]!] };
  return {
    op: "linear",
    operands: [x, weight, bias],
    attrs: {},
    outputs: [output],
    name,
    program: linears[0]!.program,
  };
}

function canMerge(a: Node | undefined, b: Node | undefined, graph: Links): boolean {
  if (a?.op !== "linear" || b?.op !== "linear" || a.operands[0] !== b.operands[0] || a.program !== b.program)
    return false;
  const [v, w] = [a.operands[1]!, b.operands[1]!];
  return v !== w && v.dtype === w.dtype && graph.uses(v).length === 1 && graph.uses(w).length === 1;
}

const gateUp: Rule = (node, graph) => {
  if (node.op !== "act_mul") return undefined;
  const [gate, up] = node.operands.map((value) => graph.producer(value!));
  if (!canMerge(gate, up, graph) || ![gate, up].every((linear) => graph.onlyUse(linear!.outputs[0]!, node)))
    return undefined;
  const merged = mergeLinears([gate!, up!]);
  const act: Node = {
    ...node,
    op: "gated_act",
    operands: merged.outputs,
    attrs: { groups: 1, kind: node.attrs.kind! },
  };
  return { removed: [gate!, up!, node], inserted: [merged, act], at: node };
};

/** q, k and v, and whatever else multiplies the same rows: one linear and views of its columns. */
const sameInput: Rule = (node, graph) => {
  if (node.op !== "linear") return undefined;
  const linears = graph.uses(node.operands[0]!).filter((other) => other === node || canMerge(node, other, graph));
  if (linears.length < 2 || linears[0] !== node) return undefined;
  const merged = mergeLinears(linears);
  let start = 0;
  const views = linears.map((linear): Node => {
    const count = linear.outputs[0]!.shape[1] as number;
    const view = { ...linear, op: "columns", operands: merged.outputs, attrs: { start, count } };
    start += count;
    return view;
  });
  return { removed: linears, inserted: [merged, ...views], at: node };
};

/** The rotation that makes a value, and the norm of heads before it if there is one. */
function rotated(value: Value, heads: number, user: Node, graph: Links) {
  const rope = graph.producer(value);
  if (rope?.op !== "rope" || rope.attrs.heads !== heads || !graph.onlyUse(value, user)) return undefined;
  const x = rope.operands[0]!;
  const norm = graph.producer(x);
  const fits = norm?.op === "rms_norm" && norm.attrs.groups === heads && norm.operands[1] && graph.onlyUse(x, rope);
  return fits
    ? { nodes: [norm, rope], rope, x: norm.operands[0]!, w: norm.operands[1], eps: norm.attrs.eps }
    : { nodes: [rope], rope, x, w: undefined, eps: undefined };
}

const qkNormRopeKvWrite: Rule = (node, graph) => {
  if (node.op !== "attention") return undefined;
  const write = graph.producer(node.operands[1]!);
  if (write?.op !== "kv_write" || !graph.onlyUse(write.outputs[0]!, node)) return undefined;
  const [cache, key, v, slots] = write.operands as [Value, Value, Value, Value];
  const q = rotated(node.operands[0]!, node.attrs.heads!, node, graph);
  const k = rotated(key, cache.shape[0] as number, write, graph);
  if (!q || !k || q.rope.operands[1] !== k.rope.operands[1] || q.rope.attrs.interleaved !== k.rope.attrs.interleaved)
    return undefined;
  if (q.eps !== undefined && k.eps !== undefined && q.eps !== k.eps) return undefined;
  const removed = [...q.nodes, ...k.nodes, write];
  const fused: Node = {
    op: "qk_norm_rope_kv_write",
    operands: [cache, q.x, k.x, v, q.rope.operands[1], slots, q.w, k.w],
    attrs: { heads: node.attrs.heads!, interleaved: q.rope.attrs.interleaved!, eps: q.eps ?? k.eps ?? 0 },
    outputs: [q.rope.outputs[0]!, write.outputs[0]!],
    name: write.name.replace(/kv_write$/, "qk_norm_rope_kv_write"),
    program: node.program,
  };
  return { removed, inserted: [fused], at: graph.last(removed) };
};

const addRmsNorm: Rule = (node, graph) => {
  const sum = node.operands[0]!;
  const add = graph.producer(sum);
  if (node.op !== "rms_norm" || node.attrs.groups !== 1 || !node.operands[1] || add?.op !== "add") return undefined;
  const [a, b] = add.operands as [Value, Value];
  if (String(a.shape) !== String(b.shape) || add.program !== node.program) return undefined;
  const fused: Node = {
    op: "add_rms_norm",
    operands: [a, b, node.operands[1]],
    attrs: { eps: node.attrs.eps! },
    outputs: [sum, node.outputs[0]!],
    name: node.name,
    program: node.program,
  };
  return { removed: [add, node], inserted: [fused], at: add };
};

/** In order; each with the op that it needs. */
const rules: readonly (readonly [op: string, rule: Rule])[] = [
  ["gated_act", gateUp],
  ["linear", sameInput],
  ["qk_norm_rope_kv_write", qkNormRopeKvWrite],
  ["add_rms_norm", addRmsNorm],
];

/** Applies every rule whose op `available` has, in sweeps over the graph, until none finds anything. */
export function fuse(graph: Graph, available: ReadonlySet<string>): Graph {
  return rules.reduce((current, [op, rule]) => (available.has(op) ? sweep(current, rule) : current), graph);
}

function sweep(graph: Graph, rule: Rule): Graph {
  const known = links(graph);
  const removed = new Set<Node>();
  const insertions = new Map<Node, readonly Node[]>();
  for (const node of graph.nodes) {
    const rewrite = rule(node, known);
    if (!rewrite || rewrite.removed.some((other) => removed.has(other))) continue;
    for (const other of rewrite.removed) removed.add(other);
    insertions.set(rewrite.at, rewrite.inserted);
  }
  if (removed.size === 0) return graph;
  const nodes = graph.nodes.flatMap((node) => insertions.get(node) ?? (removed.has(node) ? [] : [node]));
  return sweep({ ...graph, nodes }, rule);
}
