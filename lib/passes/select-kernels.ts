// Chooses a packed layout for every matrix, one for all its uses, and then a kernel for every node, among those that the device reported.
// Not here: how kernels compute, nor which ops exist (fuse.ts asks `availableOps` before it makes one).
import { InferxError } from "../base/errors.ts";
import type { Graph, Node, Value, WeightValue } from "../ir/graph.ts";
import { operandsOf, substitute } from "../ir/links.ts";
import { opFile, opOf } from "../ir/ops/index.ts";
import { parseSignature, type Signature } from "../ir/signature.ts";
import { detectFormat } from "../quant/index.ts";

/** A kernel as the addon reports it. */
export interface KernelInfo {
  readonly signature: string;
  /** "numerics=int8 ...", or "". */
  readonly tags: string;
  /** Its file, for messages. */
  readonly source: string;
  /** Set for kernels of another backend than the plan's, which only ops in `fallbackOps` may use. */
  readonly backend?: string;
}

export interface KernelChoice {
  readonly kernels: readonly KernelInfo[];
  /** "f32": exact arithmetic on stored weights; "fast": what each format's `fastNumerics` says, where there are kernels. */
  readonly numerics: "f32" | "fast";
  readonly cacheType: "kv_f32" | "kv_bf16";
  readonly fallbackOps: ReadonlySet<string>;
  /** Refuses kernels tagged `order=batch`: the bits of a token's result depend on what else is in the step. */
  readonly deterministic: boolean;
}

interface Candidate {
  readonly index: number;
  readonly signature: Signature;
  readonly numerics: string;
  readonly fallback: boolean;
}

/** Ops without a kernel: they only give another view of a value. */
export const viewOps: ReadonlySet<string> = new Set(["columns"]);

/** Kernels by op, checked against the ops, those that depend on the batch first: they are the faster ones. Kernels of ops that this build does not know are left out. */
function candidates({ kernels, fallbackOps, cacheType, deterministic }: KernelChoice): Map<string, Candidate[]> {
  const byOp = new Map<string, Candidate[]>();
  kernels.forEach((kernel, index) => {
    const signature = parseSignature(kernel.signature);
    checkAgainstOp(signature, kernel);
    const otherCache = signature.operands.some(({ type }) => type.startsWith("kv_") && type !== cacheType);
    const fallback = kernel.backend !== undefined;
    const ofBatch = tagOf(kernel, "order") === "batch";
    if (otherCache || (fallback && !fallbackOps.has(signature.op)) || (deterministic && ofBatch)) return;
    const numerics = tagOf(kernel, "numerics") ?? "f32";
    const list = byOp.get(signature.op) ?? [];
    const candidate = { index, signature, numerics, fallback };
    byOp.set(signature.op, ofBatch ? [candidate, ...list] : [...list, candidate]);
  });
  return byOp;
}

const tagOf = ({ tags }: KernelInfo, name: string) => new RegExp(`(?:^|\\s)${name}=(\\S+)`).exec(tags)?.[1];

/** The ops for which there is a kernel. */
export function availableOps(choice: KernelChoice): ReadonlySet<string> {
  return new Set(candidates(choice).keys());
}

/** @throws IX_NO_KERNEL naming the files of both when a kernel's interface is not its op's. */
function checkAgainstOp(kernel: Signature, { source, signature: text }: KernelInfo): void {
  const file = opFile(kernel.op);
  const refuse = (why: string) =>
    new InferxError("IX_NO_KERNEL", `${source} and ${file ?? "lib/ir/ops"} differ: ${why} in ${text}`);
  if (file === undefined) throw refuse(`there is no op ${kernel.op}`);
  const op = opOf(kernel.op).signature;
  const interfaceOf = ({ operands, scalars, results }: Signature) => [
    operands.map(({ name, optional }) => name + (optional ? "?" : "")).join(", "),
    scalars.map(({ name, type }) => `${name}: ${type}`).join(", "),
    `${results.length} results`,
  ];
  const [ours, theirs] = [interfaceOf(op), interfaceOf(kernel)];
  const differing = ours.findIndex((part, i) => part !== theirs[i]);
  if (differing >= 0) throw refuse(`"${theirs[differing]}", the op has "${ours[differing]}"`);
  const fits = (want: string, type: string) =>
    want === "W" || (want === "kv_C" ? type.startsWith("kv_") : want === type || (want === "f32" && type === "bf16"));
  op.operands.forEach(({ name, type, dims }, i) => {
    const other = kernel.operands[i]!;
    const sameRank = dims.length === 0 || other.dims.length === dims.length;
    if (!fits(type, other.type) || !sameRank)
      throw refuse(`${name}: ${other.type}[${other.dims}], the op has ${type}[${dims}]`);
  });
  op.results.forEach(({ type }, i) => {
    if (!fits(type, kernel.results[i]!.type))
      throw refuse(`result ${i}: ${kernel.results[i]!.type}, the op has ${type}`);
  });
}

type TypeOf = (value: Value) => string;

export interface KernelFinder {
  /** Matrices with the layouts that were chosen for them. */
  readonly layouts: ReadonlyMap<Value, WeightValue>;
  /** A value's dtype, or its layout's name. */
  readonly typeOf: TypeOf;
  /** The place in the list of kernels of the best one for a node's types, by `typeOf` if none are given. */
  find(node: Node, typeOf?: TypeOf): number | undefined;
}

export function kernelFinder(graph: Graph, choice: KernelChoice): KernelFinder {
  const byOp = candidates(choice);
  const allowed = (dtype: string): readonly string[] => {
    const fast = detectFormat(dtype)?.fastNumerics ?? "f32";
    return choice.numerics === "fast" ? [fast, "f32"] : ["f32"];
  };
  const layouts = chooseLayouts(graph, byOp, allowed);
  const typeOf = (value: Value) => layouts.get(value)?.dtype ?? value.dtype;
  const find: KernelFinder["find"] = (node, typeOfValue = typeOf) => {
    const matrix = node.operands.find((value, i) => value && opOf(node.op).signature.operands[i]!.type === "W");
    const order = allowed(matrix?.dtype ?? "f32");
    const fitting = (byOp.get(node.op) ?? []).filter(({ signature, numerics }) => {
      const typesFit = node.operands.every((value, i) => {
        const type = signature.operands[i]!.type;
        return !value || type === typeOfValue(value) || (type.startsWith("kv_") && value.dtype === "kv");
      });
      const resultsFit = node.outputs.every(
        (value, i) => value.kind === "cache" || signature.results[i]!.type === typeOfValue(value),
      );
      return typesFit && resultsFit && order.includes(numerics);
    });
    const own = fitting.filter((c) => !c.fallback);
    return order.flatMap((numerics) => (own.length > 0 ? own : fitting).filter((c) => c.numerics === numerics))[0]
      ?.index;
  };
  return { layouts, typeOf, find };
}

/** @throws IX_NO_KERNEL naming the op, its types and the kernels that there are. */
export function selectKernels(graph: Graph, choice: KernelChoice): Graph {
  const { layouts, typeOf, find } = kernelFinder(graph, choice);
  const nodes = graph.nodes.map((node): Node => {
    if (viewOps.has(node.op)) return node;
    const kernel = find(node);
    if (kernel === undefined) throw noKernel(node, typeOf, choice);
    return { ...node, kernel };
  });
  return substitute({ ...graph, nodes }, (value) => layouts.get(value) ?? value);
}

/** Each matrix with the best layout of its format that has kernels for every op which reads it; its dtype becomes the layout's name. */
function chooseLayouts(
  graph: Graph,
  byOp: ReadonlyMap<string, Candidate[]>,
  allowed: (dtype: string) => readonly string[],
) {
  const usable = new Map<Value, Set<string>>();
  for (const node of graph.nodes) {
    opOf(node.op).signature.operands.forEach(({ type }, i) => {
      const weight = node.operands[i];
      if (type !== "W" || !weight) return;
      const numerics = allowed(weight.dtype);
      const fitting = (byOp.get(node.op) ?? [])
        .filter((c) => numerics.includes(c.numerics))
        .map((c) => c.signature.operands[i]!.type);
      const before = usable.get(weight);
      usable.set(weight, new Set(before ? fitting.filter((layout) => before.has(layout)) : fitting));
    });
  }
  const chosen = new Map<Value, WeightValue>();
  for (const value of operandsOf(graph)) {
    const offered = usable.get(value);
    const layout = offered && detectFormat(value.dtype)?.layouts.find((name) => offered.has(name));
    if (layout !== undefined && value.kind === "weight") chosen.set(value, { ...value, dtype: layout });
  }
  return chosen;
}

function noKernel(
  node: Node,
  typeOf: TypeOf,
  { kernels, numerics, cacheType, deterministic }: KernelChoice,
): InferxError {
  const { operands } = opOf(node.op).signature;
  const types = operands.flatMap(({ name }, i) => {
    const value = node.operands[i];
    return value ? [`${name}: ${value.dtype === "kv" ? cacheType : typeOf(value)}`] : [];
  });
  const others = kernels.filter(({ signature }) => signature.startsWith(`${node.op}(`));
  const known = others
    .map(({ signature, tags, backend }) => `${backend ? `${backend}: ` : ""}${signature} ${tags}`.trim())
    .join("; ");
  const message = `${node.name}: no kernel for ${node.op}(${types.join(", ")}) with numerics ${numerics}${deterministic ? " whose results do not depend on the batch (deterministic)" : ""}; there are: ${known || "none"}`;
  return new InferxError("IX_NO_KERNEL", message, { op: node.op, node: node.name });
}
