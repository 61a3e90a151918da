// The contract of the native addon, written by hand; test/unit/contract.test.ts checks that the binary keeps it.
// Every method throws an Error whose `code` is one of lib/base/errors.ts.
import type { NativeTextBinding } from "./native-text.d.ts";

export interface NativeDeviceInfo {
  kind: "cpu" | "cuda";
  index: number;
  name: string;
  /** "avx512", "sm_90" */
  arch: string;
  memoryBytes: number;
  freeBytes: number;
}

export interface NativeKernel {
  signature: string;
  tags: string;
  source: string;
}

export interface NativeLayout {
  name: string;
  /** dtype of the rows it packs */
  source: string;
  panelRows: number;
}

export interface NativeDevice {
  readonly numThreads: number;
  info(): NativeDeviceInfo;
  kernels(): NativeKernel[];
  layouts(): NativeLayout[];
  /** Bytes that one panel of `columns` columns takes in a layout. */
  panelBytes(layout: string, columns: number): number;
  /** Gives the device back once no weights and no executor use it; every other call is IX_DISPOSED from then on. */
  close(): void;
}

export interface NativeTensor {
  name: string;
  dtype: string;
  /** Index into the list of files. */
  file: number;
  offset: number;
  bytes: number;
  dims: number[];
}

export interface NativeWeights {
  /** Resolves when all is packed; rejects with IX_MODEL_FORMAT, IX_FILE_*, IX_OUT_OF_MEMORY or IX_ABORTED. Call once. */
  ready(): Promise<void>;
  /** [bytes packed, bytes in all] */
  progress(): [number, number];
  cancel(): void;
  /** Gives the memory back once no executor uses it. */
  release(): void;
}

export interface NativeStep {
  /** T, R, S of this step. */
  dims: [number, number, number];
  /** The plan's input buffer. */
  inputs: ArrayBuffer;
  /** csrc/core/row_state.h, Command. */
  commands: Int32Array;
  numCommands: number;
  /** Bit i: output i is kept for wait(). */
  wanted: number;
}

export interface NativeExecutor {
  readonly memoryBytes: number;
  /** Stages a step and returns its ticket at once; at most two may be under way. */
  submit(step: NativeStep): number;
  /** Blocks until the step is done, then fills `outputs[i]` (null: not wanted) with the dense rows of output i; returns rows filled. */
  wait(ticket: number, outputs: (Int32Array | Float32Array | null)[]): number[];
  /** Nanoseconds per op since the start, in the plan's order; turned on by the first call. */
  trace(): number[];
  /** Keeps the results of op `op` (counted as in `trace`) of the steps from now on; -1: of none. */
  probe(op: number): void;
  /** What was kept of the last step, one per result; integers as their bits. */
  probed(): { rows: number; columns: number; data: Float32Array }[];
  /** Stops between two ops of a running step and frees the device's memory. */
  close(): void;
}

export interface NativeBinding extends NativeTextBinding {
  readonly version: string;
  /** Devices that can be used; for backends that cannot, the reason. `cudaLibrary` may be empty. */
  devices(cudaLibrary: string): {
    usable: NativeDeviceInfo[];
    unusable: { kind: string; code: string; reason: string }[];
  };
  Device: new (kind: string, index: number, numThreads: number, cudaLibrary: string) => NativeDevice;
  Weights: new (
    device: NativeDevice,
    plan: Uint8Array,
    tensors: NativeTensor[],
    /** Paths; or the seed of random values (lib/formats/random-values.ts), where the tensors' places in files mean nothing. */
    origin: string[] | { seed: number },
    key: string,
  ) => NativeWeights;
  Executor: new (
    device: NativeDevice,
    plan: Uint8Array,
    weights: NativeWeights,
    /** Per cache group: blocks on the device, and places on the host for those of preempted sequences (default: none). */
    options: { blocks: number[]; hostSlots?: number[]; checked: boolean },
  ) => NativeExecutor;
}
