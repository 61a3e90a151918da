// A checkpoint's tensors as the graph builder and as the native loader want them.
import type { Checkpoint as CheckpointFiles, TensorInfo } from "../formats/checkpoint.ts";
import type { Checkpoint, CheckpointTensor } from "../ir/graph.ts";

/** One tensor for the native loader. */
export interface LoadTensor {
  name: string;
  dtype: string;
  file: number;
  offset: number;
  bytes: number;
  dims: number[];
}

function describe({ dtype, shape, rowPermutation, offsetOne }: TensorInfo): CheckpointTensor {
  return {
    dtype,
    shape,
    ...(rowPermutation ? { source: { ropeHeads: rowPermutation.heads } } : {}),
    ...(offsetOne ? { oneAdded: true } : {}),
  };
}

/** What builders see: names, types, shapes. */
export function describeTensors({ tensors }: Pick<CheckpointFiles, "tensors">): Checkpoint {
  return new Map([...tensors].map(([name, tensor]) => [name, describe(tensor)]));
}

/** Where the native loader reads: files by their index, or, of random weights, the seed of the values. */
export type LoadOrigin = string[] | { seed: number };

export function loadOrigin({ files, seed }: CheckpointFiles): LoadOrigin {
  return seed === undefined ? files.map(({ path }) => path) : { seed };
}

/** Equal for checkpoints that hold the same numbers under the same names. */
export function originKey({ files, seed, tensors }: CheckpointFiles): unknown {
  return seed === undefined
    ? files.map(({ identity }) => identity)
    : [seed, [...tensors.values()].map(({ name, dtype, shape }) => [name, dtype, shape])];
}

/** Where the loader finds the tensors that a load program names. */
export function locateTensors(files: CheckpointFiles, names: ReadonlySet<string>): LoadTensor[] {
  return [...files.tensors.values()]
    .filter(({ name }) => names.has(name))
    .map(({ name, dtype, file, byteOffset, byteLength, shape }) => ({
      name,
      dtype,
      file,
      offset: byteOffset,
      bytes: byteLength,
      dims: shape,
    }));
}
