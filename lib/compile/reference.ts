// A compiled model through the reference interpreter: the oracle that `inspect --diff` compares the executor with.
import { BoundedReader } from "../formats/bounded-reader.ts";
import type { Checkpoint } from "../formats/checkpoint.ts";
import { dequantize } from "../formats/dequantize.ts";
import { type RandomDType, randomValues } from "../formats/random-values.ts";
import { createCaches, interpret } from "../ir/interpret.ts";
import type { Tensor } from "../ir/ops/op.ts";
import { viewOps } from "../passes/select-kernels.ts";
import type { CompiledModel } from "./compile.ts";

export interface ReferenceStep {
  name: string;
  results: { data: ArrayLike<number>; isInteger: boolean }[];
}

/** A checkpoint's tensors as f32, each read, or made, once. */
export function tensorReader({ tensors, files, seed }: Checkpoint): (name: string) => Float32Array {
  const read = new Map<string, Float32Array>();
  return (name) => {
    let data = read.get(name);
    if (!data) {
      const { dtype, shape, file, byteOffset, byteLength } = tensors.get(name)!;
      if (seed !== undefined) data = randomValues(seed, name, shape, dtype as RandomDType);
      else {
        using reader = new BoundedReader(files[file]!.path);
        data = dequantize(dtype, reader.readAt(byteOffset, byteLength));
      }
      read.set(name, data);
    }
    return data;
  };
}

/** The results of all steps of the forward program for one sequence of `tokens`, caches and views left out. */
export function interpretForward(
  checkpoint: Checkpoint,
  compiled: CompiledModel,
  tokens: readonly number[],
): ReferenceStep[] {
  const { graph, groups } = compiled;
  const tokensPerBlock = groups[0]?.tokensPerBlock ?? 1;
  const blocks = Math.ceil(tokens.length / tokensPerBlock);
  const i32 = (dims: number[], f: (i: number) => number): Tensor => {
    return { dims, data: Int32Array.from({ length: dims.reduce((a, b) => a * b) }, (_, i) => f(i)) };
  };
  const count = tokens.length;
  const inputs = new Map<string, Tensor>([
    ["tokens", i32([count], (i) => tokens[i]!)],
    ["positions", i32([count], (i) => i)],
    ["rope_row", i32([count], () => 0)],
    ["row_index", i32([count], (i) => i)],
    ["seq_start", i32([2], (i) => i * count)],
    ["seq_context", i32([1], () => count)],
    ["seq_row", i32([1], () => 0)],
  ]);
  groups.forEach((_, g) => {
    inputs.set(
      `slots.${g}`,
      i32([count], (i) => i),
    );
    inputs.set(
      `block_table.${g}`,
      i32([1, blocks], (i) => i),
    );
  });
  const traced: Tensor[][] = [];
  interpret(graph, {
    tensor: tensorReader(checkpoint),
    inputs,
    caches: createCaches(graph, blocks, tokensPerBlock),
    trace: (_, results) => traced.push([...results]),
  });
  const nodes = graph.nodes.filter(({ program }) => program === "forward");
  return nodes.flatMap((node, n) => {
    if (viewOps.has(node.op)) return [];
    const results = node.outputs.flatMap((value, i) => {
      return value.kind === "result" ? [{ data: traced[n]![i]!.data, isInteger: value.dtype !== "f32" }] : [];
    });
    return [{ name: `${node.name} (${node.op})`, results }];
  });
}
