// What all builders of one graph share: its parts so far, with shape checks at every addition.
// Not here: the methods that architectures call (builder.ts).
import { InferxError } from "../base/errors.ts";
import { invariant } from "../base/invariant.ts";
import type {
  CacheGroup,
  CacheOptions,
  CacheValue,
  Checkpoint,
  DataType,
  Dim,
  Graph,
  InputValue,
  Node,
  Value,
  WeightValue,
} from "./graph.ts";
import { weightRows } from "./graph.ts";
import { opOf } from "./ops/index.ts";
import { inferResults, type Op } from "./ops/op.ts";

/** Shapes of a node's operands by the signature's names. */
export function operandShapes(op: Op, operands: Node["operands"]): Record<string, readonly Dim[] | undefined> {
  return Object.fromEntries(op.signature.operands.map(({ name }, i) => [name, operands[i]?.shape]));
}

/** What a value may stand for: an operand of a float type also takes weights, whose storage a later pass decides, and narrowed results. */
export function fitsType(value: Value, type: string): boolean {
  if (type.startsWith("kv_")) return value.kind === "cache";
  if (type === "W") return value.kind === "weight";
  return value.dtype === type || (type === "f32" && (value.kind === "weight" || isNarrow(value)));
}

/** A float result kept in 16 bits. */
export function isNarrow(value: Value): boolean {
  return value.kind === "result" && value.dtype === "bf16";
}

export class GraphState {
  readonly checkpoint: Checkpoint;
  readonly groups: CacheGroup[] = [];
  readonly outputs = new Map<string, Value>();
  readonly #inputs = new Map<string, InputValue>();
  readonly #nodes: Node[] = [];
  readonly #weights = new Map<string, WeightValue>();
  readonly #oneAdded = new Set<string>();

  constructor(checkpoint: Checkpoint) {
    this.checkpoint = checkpoint;
  }

  addInput(name: string, dtype: DataType, shape: readonly Dim[], persistent = false): InputValue {
    const input: InputValue = { kind: "input", name, dtype, shape, persistent };
    this.#inputs.set(name, input);
    return input;
  }

  input(name: string): InputValue {
    const input = this.#inputs.get(name);
    invariant(input, `graph input ${name}`);
    return input;
  }

  /** The checkpoint's tensor; the same value for every use. */
  weight(name: string): WeightValue {
    let weight = this.#weights.get(name);
    if (!weight) {
      const { dtype, shape, source, oneAdded } = this.checkpoint.get(name)!;
      const tensor = source?.tensor ?? name;
      const { rowStart = 0, ropeHeads = 0 } = source ?? {};
      const rows = {
        tensor,
        rowStart,
        rowCount: weightRows(shape),
        ropeHeads,
        transposed: false,
        addOne: false,
        scale: 1,
      };
      weight = { kind: "weight", name, dtype, shape, sources: [rows] };
      this.#weights.set(name, weight);
      if (oneAdded) this.#oneAdded.add(tensor);
    }
    return weight;
  }

  hasOneAdded(tensor: string): boolean {
    return this.#oneAdded.has(tensor);
  }

  cacheGroup({ kind, window = 0, layers, kvHeads, headDim }: CacheOptions): CacheValue[] {
    if ((kind === "window") !== window > 0)
      throw new InferxError("IX_MODEL_CONFIG", `cache kind ${kind} with window ${window}`);
    const group = this.groups.length;
    const slots = this.addInput(`slots.${group}`, "i32", ["T"]);
    const blockTable = this.addInput(`block_table.${group}`, "i32", ["P", "C"], true);
    this.groups.push({ kind, window, layers, kvHeads, headDim, slots, blockTable });
    return Array.from({ length: layers }, (_, layer) => {
      return { kind: "cache", name: `cache.${group}.${layer}`, dtype: "kv", shape: [kvHeads, headDim], group, layer };
    });
  }

  append(node: Omit<Node, "outputs">): Value[] {
    const op = opOf(node.op);
    try {
      op.signature.operands.forEach(({ name, type }, i) => {
        const value = node.operands[i];
        if (value && !fitsType(value, type)) {
          throw new InferxError("IX_MODEL_CONFIG", `operand ${name} is ${value.kind} ${value.dtype}, expected ${type}`);
        }
      });
      const results = inferResults(op, operandShapes(op, node.operands), node.attrs);
      const outputs = results.map(({ dtype, shape }, i): Value => {
        const { inPlaceOf } = op.signature.results[i]!;
        if (inPlaceOf === undefined) return { kind: "result", name: node.name, dtype, shape };
        const cache = node.operands[op.signature.operands.findIndex((o) => o.name === inPlaceOf)] as CacheValue;
        return { ...cache };
      });
      this.#nodes.push({ ...node, outputs });
      return outputs;
    } catch (error) {
      if (!InferxError.is(error)) throw error;
      throw new InferxError(error.code, `${node.name} (${node.op}): ${error.message}`, error.details, { cause: error });
    }
  }

  finish(): Graph {
    return {
      inputs: [...this.#inputs.values()],
      nodes: [...this.#nodes],
      groups: [...this.groups],
      outputs: new Map(this.outputs),
    };
  }
}
