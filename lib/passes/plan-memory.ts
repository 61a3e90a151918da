// Gives every result a place in one arena, by lifetimes, and every input a place in the staged input set.
// Not here: workspaces of kernels, which C++ asks for when a plan is loaded.
import { InferxError } from "../base/errors.ts";
import type { Dim, Graph, InputValue, Value } from "../ir/graph.ts";
import { elementBytes } from "./plan-format.ts";
import { viewOps } from "./select-kernels.ts";

/** Bounds of everything symbolic. */
export interface Limits {
  /** T: most tokens in a step. */
  readonly maxTokens: number;
  /** R: most sequences in a step. */
  readonly maxSequences: number;
  /** S: most rows in a step that get logits. */
  readonly maxLogitRows: number;
  /** P: most sequences that run at a time. */
  readonly maxRunning: number;
  /** Longest context; C = its blocks. */
  readonly contextTokens: number;
  readonly blockTokens: number;
  /** B: logit-bias entries of all rows of a step. */
  readonly maxBias: number;
}

/** Bytes from the arena's start, elements from row to row. */
export interface Place {
  readonly offset: number;
  readonly stride: number;
}

export interface Memory {
  readonly arena: ReadonlyMap<Value, Place>;
  readonly arenaBytes: number;
  readonly inputs: ReadonlyMap<InputValue, { readonly offset: number; readonly elements: number }>;
  readonly inputBytes: number;
}

const rowElements = 32;
const alignment = 64;
const inputBytesEach = 4;

function align(bytes: number): number {
  return Math.ceil(bytes / alignment) * alignment;
}

/** The largest value of a dimension. */
export function boundOf(dim: Dim, limits: Limits): number {
  const { maxTokens, maxSequences, maxLogitRows, maxRunning, contextTokens, blockTokens, maxBias } = limits;
  if (typeof dim === "number") return dim;
  const bounds = {
    T: maxTokens,
    R: maxSequences,
    S: maxLogitRows,
    P: maxRunning,
    C: Math.ceil(contextTokens / blockTokens),
    B: maxBias,
  };
  return bounds[dim];
}

/** A run of steps during which bytes are taken. */
interface Life {
  readonly value: Value;
  readonly stride: number;
  readonly bytes: number;
  readonly first: number;
  last: number;
}

export function planMemory(graph: Graph, limits: Limits): Memory {
  const parents = new Map<Value, { parent: Value; start: number }>();
  const lives = new Map<Value, Life>();
  const rootOf = (value: Value): Value => {
    const view = parents.get(value);
    return view ? rootOf(view.parent) : value;
  };
  graph.nodes.forEach((node, step) => {
    for (const value of node.operands) {
      const life = value && lives.get(rootOf(value));
      if (life) life.last = step;
    }
    for (const value of node.outputs) {
      if (value.kind !== "result") continue;
      if (viewOps.has(node.op)) {
        const parent = node.operands[0]!;
        if (parent.kind !== "result")
          throw new InferxError("IX_PLAN", `${node.name}: a view of ${parent.kind} ${parent.name}`);
        parents.set(value, { parent, start: node.attrs.start! });
        continue;
      }
      const stride = Math.ceil(boundOf(value.shape[1]!, limits) / rowElements) * rowElements;
      const bytes = align(boundOf(value.shape[0]!, limits) * stride * elementBytes(value.dtype));
      lives.set(value, { value, stride, bytes, first: step, last: step });
    }
  });
  for (const value of graph.outputs.values()) {
    const life = lives.get(rootOf(value));
    if (life) life.last = graph.nodes.length;
  }

  const { places, arenaBytes } = placeLives([...lives.values()]);
  const arena = new Map<Value, Place>(places);
  for (const [value] of parents) arena.set(value, placeOfView(value, parents, places));
  return { arena, arenaBytes, ...placeInputs(graph.inputs, limits) };
}

/** Largest first, each at the lowest offset where nothing lies that lives at the same time. */
function placeLives(lives: readonly Life[]): { places: Map<Value, Place>; arenaBytes: number } {
  const placed: { life: Life; offset: number }[] = [];
  let arenaBytes = 0;
  for (const life of lives.toSorted((a, b) => b.bytes - a.bytes || a.first - b.first)) {
    const others = placed
      .filter((p) => p.life.first <= life.last && life.first <= p.life.last)
      .sort((a, b) => a.offset - b.offset);
    let offset = 0;
    for (const other of others) {
      if (other.offset - offset >= life.bytes) break;
      offset = Math.max(offset, other.offset + other.life.bytes);
    }
    placed.push({ life, offset });
    arenaBytes = Math.max(arenaBytes, offset + life.bytes);
  }
  return {
    places: new Map(placed.map(({ life, offset }) => [life.value, { offset, stride: life.stride }])),
    arenaBytes,
  };
}

function placeOfView(
  value: Value,
  parents: ReadonlyMap<Value, { parent: Value; start: number }>,
  places: ReadonlyMap<Value, Place>,
): Place {
  const view = parents.get(value);
  if (!view) return places.get(value)!;
  const { offset, stride } = placeOfView(view.parent, parents, places);
  return { offset: offset + view.start * elementBytes(value.dtype), stride };
}

/** Staged inputs one after another. R and S have room for one more: seq_start and bias_start end with the total. */
function placeInputs(inputs: readonly InputValue[], limits: Limits): Pick<Memory, "inputs" | "inputBytes"> {
  const placed = new Map<InputValue, { offset: number; elements: number }>();
  let inputBytes = 0;
  for (const input of inputs) {
    if (input.persistent) continue;
    const bounds = input.shape.map((dim) => boundOf(dim, limits) + (dim === "R" || dim === "S" ? 1 : 0));
    const elements = bounds.reduce((a, b) => a * b, 1);
    placed.set(input, { offset: inputBytes, elements });
    inputBytes += align(elements * inputBytesEach);
  }
  return { inputs: placed, inputBytes };
}

/** The places as text, in order of offset. */
export function printMemory(graph: Graph, { arena, arenaBytes, inputs, inputBytes }: Memory): string {
  const made = graph.nodes.flatMap((node) => node.outputs.map((value) => [node.name, arena.get(value)] as const));
  const lines = made.flatMap(([name, place]) => (place ? [`  ${place.offset} stride ${place.stride}: ${name}`] : []));
  const staged = [...inputs].map(([input, { offset, elements }]) => `  ${offset} elements ${elements}: ${input.name}`);
  return `arena: ${arenaBytes} bytes\n${lines.join("\n")}\ninputs: ${inputBytes} bytes\n${staged.join("\n")}\n`;
}
