// From a path and options to everything that an engine needs: checkpoint read, architecture compiled, text ready, sizes known.
// Takes no memory for weights or cache; runs in the caller's thread.
import { createHash } from "node:crypto";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import type { NativeBinding, NativeDevice, NativeDeviceInfo } from "../../types/native.d.ts";
import { InferxError } from "../base/errors.ts";
import { unreachable } from "../base/invariant.ts";
import { checkChoice, checkInt, checkNumber } from "../base/options.ts";
import { packageRoot } from "../base/package-root.ts";
import { type CompiledModel, compileModel } from "../compile/compile.ts";
import {
  type Architecture,
  type Checkpoint,
  checkSourceUnchanged,
  type ModelSource,
  openModelSource,
} from "../compile/model-source.ts";
import { cudaLibrary, native } from "../native/binding.ts";
import type { PolicyName } from "../sched/policies/index.ts";
import type { EngineConfig } from "./parts.ts";
import { planDifferences, type StepDifference } from "./plan-difference.ts";
import { PromptEncoder } from "./prompt-encoder.ts";
import { type CacheSize, checkFits, numBlocks } from "./sizing.ts";
import { TokenTable } from "./token-table.ts";

export interface PrepareOptions {
  device?: "auto" | "cpu" | "cuda" | undefined;
  threads?: number | undefined;
  contextLength?: number | undefined;
  numerics?: "f32" | "fast" | undefined;
  cache?: { dtype?: "auto" | "f32" | "bf16" | undefined } | undefined;
  architectures?: readonly Architecture[] | undefined;
  chatTemplate?: string | undefined;
  maxStepTokens?: number | undefined;
  maxSequences?: number | undefined;
  checked?: boolean | undefined;
  onProgress?: ((progress: { phase: "read" | "compile"; loadedBytes: number; totalBytes: number }) => void) | undefined;
}

export interface EngineOptions {
  cache: CacheSize & { dtype?: "auto" | "f32" | "bf16" | undefined; prefixCache?: boolean | undefined };
  policy?: PolicyName;
  maxQueuedRequests?: number | undefined;
  maxStepTokens?: number | undefined;
  maxSequences?: number | undefined;
  targetStepMs?: number | undefined;
}

const defaults = { maxStepTokens: 512, maxSequences: 256, maxContext: 32768, maxQueued: 4096, targetStepMs: 50 };
/** Slots of a block: small enough for short prefixes to be shared, large enough for wide loads. */
const tokensPerBlock = { cpu: 32, cuda: 64 };

/** The model that comes with the package. */
export function bundledModelPath(): string {
  return join(packageRoot(), "models", "demo", "demo-q8_0.gguf");
}

interface OpenedDevice {
  device: NativeDevice;
  info: NativeDeviceInfo;
  library: string;
}

/** Makers of the devices that may run a model, best first. @throws IX_INVALID_ARGUMENT; IX_NO_DEVICE with the reason */
function deviceChoices(binding: NativeBinding, options: PrepareOptions): (() => OpenedDevice)[] {
  const wanted = checkChoice("device", options.device ?? "auto", ["auto", "cpu", "cuda"]);
  const threads = options.threads === undefined ? 0 : checkInt("threads", options.threads, 1, 1024);
  if (threads > 4 * availableParallelism()) {
    throw new InferxError(
      "IX_INVALID_ARGUMENT",
      `threads ${threads} is far above the ${availableParallelism()} processors of this machine`,
      { option: "threads" },
    );
  }
  const library = wanted === "cpu" ? "" : cudaLibrary(); // looking at a GPU takes some of its memory
  const { usable, unusable } = binding.devices(library);
  const kinds = wanted === "auto" ? (["cuda", "cpu"] as const) : [wanted];
  const found = kinds.flatMap((kind) => usable.find((device) => device.kind === kind) ?? []);
  if (found.length === 0) {
    const reason = unusable.find((device) => device.kind === wanted)?.reason ?? "no such device was found";
    throw new InferxError("IX_NO_DEVICE", `the ${wanted} device cannot be used: ${reason}`, { device: wanted, reason });
  }
  return found.map((info) => () => ({ device: new binding.Device(info.kind, 0, threads, library), info, library }));
}

/**
 * Reads and compiles a model. `path`: a Hugging Face folder or a `.gguf` file; default: the bundled model. `device: "auto"` takes the
 * first device whose kernels cover the model; `info` says which.
 * @throws as `Model.load`, except for what only loading the weights can show
 */
export function prepareModel(path: string | undefined, options: PrepareOptions): PreparedModel {
  options.onProgress?.({ phase: "read", loadedBytes: 0, totalBytes: 0 });
  const binding = native();
  const where = path ?? bundledModelPath();
  const source = openModelSource(where);
  options.onProgress?.({ phase: "compile", loadedBytes: 0, totalBytes: 0 });
  const choices = deviceChoices(binding, options);
  for (const [i, open] of choices.entries()) {
    try {
      return new PreparedModel(binding, where, source, open(), options);
    } catch (error) {
      if (i === choices.length - 1 || !InferxError.is(error) || error.code !== "IX_NO_KERNEL") throw error;
    }
  }
  return unreachable(choices as never);
}

export class PreparedModel {
  readonly checkpoint: Checkpoint;
  readonly text: PromptEncoder;
  readonly tokens: TokenTable;
  readonly #binding: NativeBinding;
  readonly #path: string;
  readonly #device: NativeDevice;
  readonly #deviceInfo: NativeDeviceInfo;
  readonly #cudaLibrary: string;
  readonly #contextLength: number;
  readonly #longRopeAfter: number;
  readonly #options: PrepareOptions;
  readonly #numerics: "f32" | "fast";
  readonly #cacheDtype: "f32" | "bf16";
  #compiled: CompiledModel | undefined;

  constructor(
    binding: NativeBinding,
    path: string,
    source: ModelSource,
    opened: OpenedDevice,
    options: PrepareOptions,
  ) {
    this.#binding = binding;
    this.#path = path;
    const { checkpoint } = source;
    this.checkpoint = checkpoint;
    this.#device = opened.device;
    this.#deviceInfo = opened.info;
    this.#cudaLibrary = opened.library;
    this.#options = options;
    const own = source.contextLength;
    const length = options.contextLength ?? Math.min(own, defaults.maxContext);
    this.#contextLength = checkInt("contextLength", length, 1, Number.isFinite(own) ? own : 1 << 24);
    this.#longRopeAfter = source.longRopeAfter;
    const dtypes = new Set([...checkpoint.tensors.values()].map(({ dtype }) => dtype));
    const { numerics, cache } = options;
    this.#numerics =
      numerics === undefined
        ? defaultNumerics(dtypes, opened.info.kind)
        : checkChoice("numerics", numerics, ["f32", "fast"]);
    const dtype = cache?.dtype ?? "auto";
    this.#cacheDtype =
      dtype !== "auto" ? checkChoice("cache.dtype", dtype, ["f32", "bf16"]) : this.#numerics === "f32" ? "f32" : "bf16";
    this.text = new PromptEncoder(binding, checkpoint, options.chatTemplate);
    this.tokens = new TokenTable(this.text.tokenizer);
    this.compiled(this.#maxStepTokens(), this.#maxSequences());
  }

  /** The compiled plan for these bounds; the last one is kept. */
  compiled(maxStepTokens: number, maxSequences: number): CompiledModel {
    if (this.#compiled?.maxStepTokens !== maxStepTokens || this.#compiled.maxSequences !== maxSequences) {
      this.#compiled = this.#compile({ maxStepTokens, maxSequences });
    }
    return this.#compiled;
  }

  #compile(bounds: { maxStepTokens: number; maxSequences: number; maxLogitRows?: number }): CompiledModel {
    return compileModel(this.checkpoint, {
      ...bounds,
      kernels: this.#device.kernels(),
      numerics: this.#numerics,
      cacheDtype: this.#cacheDtype,
      contextLength: this.#contextLength,
      tokensPerBlock: tokensPerBlock[this.#deviceInfo.kind],
      architectures: this.#options.architectures ?? [],
      panelBytes: (layout, columns) => this.#device.panelBytes(layout, columns),
      panelRows: this.#device.layouts()[0]?.panelRows ?? 1,
    });
  }

  /** What each step of a prompt's forward makes, beside the reference interpreter. */
  async *differences(prompt: string | readonly number[]): AsyncGenerator<StepDifference> {
    const tokens = Array.from(await this.text.encode(prompt, {}));
    const compiled = this.#compile({ maxStepTokens: tokens.length, maxSequences: 1, maxLogitRows: tokens.length });
    yield* planDifferences(this.#binding, this.#device, this.checkpoint, compiled, this.#contextLength, tokens);
  }

  #maxStepTokens(value = this.#options.maxStepTokens): number {
    return checkInt(
      "maxStepTokens",
      value ?? Math.min(defaults.maxStepTokens, Math.max(1, this.#contextLength)),
      1,
      65536,
    );
  }
  #maxSequences(value = this.#options.maxSequences): number {
    return checkInt("maxSequences", value ?? defaults.maxSequences, 1, 4096);
  }

  /** Everything for an engine; checks that it fits. @throws IX_OUT_OF_MEMORY, IX_INVALID_ARGUMENT */
  engineConfig(options: EngineOptions): EngineConfig & { memory: MemoryPlan } {
    checkSourceUnchanged(this.checkpoint);
    const memory = this.memoryPlan(options);
    checkFits(memory, memory.freeBytes);
    const compiled = this.compiled(
      this.#maxStepTokens(options.maxStepTokens),
      this.#maxSequences(options.maxSequences),
    );
    const files = this.checkpoint.files;
    const key = createHash("sha256")
      .update(JSON.stringify([files.map((f) => f.identity), this.#deviceInfo.kind, compiled.loadProgram]))
      .digest("hex");
    return {
      device: {
        kind: this.#deviceInfo.kind,
        index: this.#deviceInfo.index,
        threads: this.#options.threads ?? 0,
        cudaLibrary: this.#cudaLibrary,
      },
      plan: compiled.plan,
      layout: compiled.layout,
      outputs: compiled.outputs,
      weights: { tensors: compiled.tensors, files: files.map((f) => f.path), key },
      cache: {
        groups: compiled.groups.map((spec) => ({ spec, numBlocks: memory.blocks })),
        maxRows: compiled.maxSequences,
        maxTokens: this.#contextLength,
        prefixCaching: options.cache.prefixCache ?? true,
      },
      scheduling: {
        maxStepTokens: compiled.maxStepTokens,
        maxLogitRows: compiled.maxSequences,
        targetStepMs: checkNumber("targetStepMs", options.targetStepMs ?? defaults.targetStepMs, 1, 60_000),
        maxQueued: checkInt("maxQueuedRequests", options.maxQueuedRequests ?? defaults.maxQueued, 1),
      },
      policy: options.policy ?? "fcfs",
      tokenizer: this.text.shared(),
      checked: this.#options.checked ?? false,
      memory,
    };
  }

  /** Bytes that weights, cache and activations will take. @throws IX_OUT_OF_MEMORY when the cache's wish holds no block */
  memoryPlan(options: Pick<EngineOptions, "cache" | "maxStepTokens" | "maxSequences">) {
    const compiled = this.compiled(
      this.#maxStepTokens(options.maxStepTokens),
      this.#maxSequences(options.maxSequences),
    );
    const blockTokens = tokensPerBlock[this.#deviceInfo.kind];
    const blockBytes = compiled.groups.reduce((sum, group) => sum + group.bytesPerBlock, 0);
    const { freeBytes } = this.#device.info();
    const blocks = numBlocks(options.cache, blockBytes, Math.ceil(this.#contextLength / blockTokens), freeBytes);
    const { weightBytes, activationBytes } = compiled;
    const cacheBytes = blocks * blockBytes;
    const totalBytes = weightBytes + cacheBytes + activationBytes;
    return {
      architecture: this.checkpoint.architecture,
      parameters: compiled.parameters,
      weightBytes,
      cacheBytes,
      activationBytes,
      totalBytes,
      freeBytes,
      fits: totalBytes <= freeBytes,
      bytesPerToken: blockBytes / blockTokens,
      blocks,
      blockTokens,
    };
  }

  /** `memory`: what was planned when the engine started; free memory, and with it a share of it, is another one by now. */
  info(memory: MemoryPlan) {
    const compiled = this.#compiled!;
    const formats: Record<string, number> = {};
    for (const { dtype } of this.checkpoint.tensors.values()) formats[dtype] = (formats[dtype] ?? 0) + 1;
    const { kind, name, arch } = this.#deviceInfo;
    return {
      architecture: memory.architecture,
      path: this.#path,
      parameters: memory.parameters,
      vocabularySize: compiled.vocabularySize,
      contextLength: this.#contextLength,
      layers: compiled.layers,
      hiddenSize: compiled.hiddenSize,
      formats,
      device: { kind, name, arch, threads: this.#device.numThreads },
      numerics: this.#numerics,
      cacheDtype: this.#cacheDtype,
      weightBytes: memory.weightBytes,
      cacheBytes: memory.cacheBytes,
      blockTokens: memory.blockTokens,
      blocks: memory.blocks,
    };
  }

  get requestDefaults() {
    return {
      contextLength: this.#contextLength,
      vocabularySize: this.#compiled!.vocabularySize,
      eosTokenIds: this.checkpoint.eosTokenIds,
      hasTokenizer: this.text.tokenizer !== undefined,
      sampling: samplingDefaults(this.checkpoint.generationConfig),
    };
  }

  /** Makes the graph's text after each pass, and the plan's. */
  get dumps(): ReadonlyMap<string, () => string> {
    return this.#compiled!.dumps;
  }

  /** Which row of the rope table a sequence uses (longrope). */
  ropeRow(promptTokens: number): number {
    return promptTokens > this.#longRopeAfter ? 1 : 0;
  }
}

export type MemoryPlan = ReturnType<PreparedModel["memoryPlan"]>;

/** Exact arithmetic where the weights are floats; on a GPU bf16 weights are computed with in bf16. */
function defaultNumerics(dtypes: ReadonlySet<string>, device: string): "f32" | "fast" {
  const quantized = [...dtypes].some((dtype) => !["f32", "f16", "bf16"].includes(dtype));
  return quantized || (device === "cuda" && dtypes.has("bf16")) ? "fast" : "f32";
}

/** What the publisher recommends; greedy unless sampling is asked for. */
function samplingDefaults(config: Record<string, unknown>): Record<string, number> {
  if (config.do_sample !== true) return {};
  const names = {
    temperature: "temperature",
    topK: "top_k",
    topP: "top_p",
    minP: "min_p",
    repetitionPenalty: "repetition_penalty",
  };
  const found: Record<string, number> = { temperature: 1 };
  for (const [name, key] of Object.entries(names)) {
    const value = config[key];
    if (typeof value === "number" && Number.isFinite(value) && value >= 0) found[name] = value;
  }
  return found;
}
