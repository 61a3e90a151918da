// From the plain data that the caller's thread sends to what the loop needs: device, weights, executor, cache, text.
import type {
  NativeBinding,
  NativeDevice,
  NativeDeviceInfo,
  NativeExecutor,
  NativeTensor,
  NativeWeights,
} from "../../types/native.d.ts";
import type { CacheGroupOptions } from "../cache/cache-group.ts";
import { CacheState } from "../cache/kv-cache.ts";
import type { SchedulerOptions } from "../sched/options.ts";
import type { PolicyName } from "../sched/policies/index.ts";
import type { RequestSpec } from "./protocol.ts";
import type { TextSink } from "./request.ts";
import type { InputLayout } from "./step-inputs.ts";
import { createTextSinks, type SharedTokenizer } from "./text-sink.ts";

/** Everything that an engine is made from; crosses to the worker by structured clone. */
export interface EngineConfig {
  device: { kind: string; index: number; threads: number; cudaLibrary: string };
  plan: Uint8Array;
  layout: InputLayout;
  /** Names of the plan's outputs, in its order. */
  outputs: readonly string[];
  weights: { tensors: NativeTensor[]; origin: string[] | { seed: number }; key: string };
  cache: {
    groups: CacheGroupOptions[];
    maxRows: number;
    maxTokens: number;
    prefixCaching: boolean;
  };
  scheduling: Pick<SchedulerOptions, "maxStepTokens" | "maxLogitRows" | "targetStepMs" | "maxQueued">;
  policy: PolicyName;
  tokenizer: SharedTokenizer | undefined;
  /** Look for NaN after each op, and fill freed blocks with it. */
  checked: boolean;
}

export interface EngineParts {
  executor: NativeExecutor;
  /** Stops the executor and gives all memory back. */
  close: () => void;
  cache: CacheState;
  layout: InputLayout;
  outputs: readonly string[];
  scheduling: EngineConfig["scheduling"];
  policy: PolicyName;
  createText: (spec: RequestSpec) => TextSink;
  device: NativeDeviceInfo;
  threads: number;
  checked: boolean;
}

async function loadWeights(
  native: NativeBinding,
  device: NativeDevice,
  config: EngineConfig,
  onProgress: (loadedBytes: number, totalBytes: number) => void,
  onCancel: (cancel: () => void) => void,
): Promise<NativeWeights> {
  const { tensors, origin, key } = config.weights;
  const weights = new native.Weights(device, config.plan, tensors, origin, key);
  onCancel(() => weights.cancel());
  const timer = setInterval(() => onProgress(...weights.progress()), progressMs);
  try {
    await weights.ready();
  } finally {
    clearInterval(timer);
  }
  onProgress(...weights.progress());
  return weights;
}

/** How often loading reports progress. */
const progressMs = 50;

/**
 * Opens the device, packs the weights (or shares them with another engine of the process) and allocates the cache.
 * @throws IX_NO_DEVICE, IX_OUT_OF_MEMORY, IX_MODEL_FORMAT, IX_FILE_*, IX_ABORTED
 */
export async function openParts(
  native: NativeBinding,
  config: EngineConfig,
  onProgress: (loadedBytes: number, totalBytes: number) => void,
  onCancel: (cancel: () => void) => void,
): Promise<EngineParts> {
  const { kind, index, threads, cudaLibrary } = config.device;
  const device = new native.Device(kind, index, threads, cudaLibrary);
  let executor: NativeExecutor | undefined;
  let weights: NativeWeights | undefined;
  const close = () => {
    executor?.close();
    weights?.release();
    device.close();
  };
  try {
    weights = await loadWeights(native, device, config, onProgress, onCancel);
    executor = new native.Executor(device, config.plan, weights, {
      blocks: config.cache.groups.map(({ numBlocks }) => numBlocks),
      hostSlots: config.cache.groups.map(({ numHostSlots = 0 }) => numHostSlots),
      checked: config.checked,
    });
  } catch (error) {
    close();
    throw error;
  }
  return {
    executor,
    close,
    cache: new CacheState({ ...config.cache, poison: config.checked }),
    layout: config.layout,
    outputs: config.outputs,
    scheduling: config.scheduling,
    policy: config.policy,
    createText: createTextSinks(native, config.tokenizer),
    device: device.info(),
    threads: device.numThreads,
    checked: config.checked,
  };
}
