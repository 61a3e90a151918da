// From a path and options to everything that an engine needs: checkpoint read, architecture compiled, text ready, sizes known.
// Takes no memory for weights or cache; runs in the caller's thread.
import { createHash } from "node:crypto";
import { join } from "node:path";
import type { NativeBinding, NativeDevice } from "../../types/native.d.ts";
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
  type RandomModel,
} from "../compile/model-source.ts";
import { native } from "../native/binding.ts";
import type { PolicyName } from "../sched/policies/index.ts";
import { type DeviceChoice, deviceChoices } from "./device-choice.ts";
import type { EngineConfig } from "./parts.ts";
import { planDifferences, type StepDifference } from "./plan-difference.ts";
import { PromptEncoder } from "./prompt-encoder.ts";
import { type CacheSize, checkFits, numBlocks, numHostSlots } from "./sizing.ts";
import { TokenTable } from "./token-table.ts";

export interface PrepareOptions {
  device?: "auto" | "cpu" | "cuda" | undefined;
  threads?: number | undefined;
  contextLength?: number | undefined;
  numerics?: "f32" | "fast" | undefined;
  deterministic?: boolean | undefined;
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

const defaults = { maxSequences: 256, maxContext: 32768, maxQueued: 4096 };
/** Products reach their speed with so many tokens; the time is that of a step of prompts alone. */
const stepDefaults = { cpu: { tokens: 512, targetMs: 50 }, cuda: { tokens: 4096, targetMs: 100 } };
/** Slots of a block: small enough for short prefixes to be shared, large enough for wide loads. */
const tokensPerBlock = { cpu: 32, cuda: 64 };

/** The model that comes with the package. */
export function bundledModelPath(): string {
  return join(packageRoot(), "models", "demo", "demo-q8_0.gguf");
}

/**
 * Reads and compiles a model. `from`: a Hugging Face folder, a `.gguf` file or random weights; default: the bundled model. `device: "auto"` takes the
 * first device whose kernels cover the model; `info` says which.
 * @throws as `Model.load`, except for what only loading the weights can show
 */
export function prepareModel(from: string | RandomModel | undefined, options: PrepareOptions): PreparedModel {
  options.onProgress?.({ phase: "read", loadedBytes: 0, totalBytes: 0 });
  const binding = native();
  const where = from ?? bundledModelPath();
  const source = openModelSource(where, options.architectures);
  options.onProgress?.({ phase: "compile", loadedBytes: 0, totalBytes: 0 });
  let { choices, note } = deviceChoices(binding, options);
  for (const [i, choice] of choices.entries()) {
    try {
      return new PreparedModel(binding, typeof where === "string" ? where : "", source, choice, note, options);
    } catch (error) {
      if (i === choices.length - 1 || !InferxError.is(error) || error.code !== "IX_NO_KERNEL") throw error;
      note = error.message;
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
  readonly #device: DeviceChoice;
  readonly #deviceNote: string | undefined;
  readonly #contextLength: number;
  readonly #longRopeAfter: number;
  readonly #options: PrepareOptions;
  readonly #numThreads: number;
  readonly #numerics: "f32" | "fast";
  readonly #cacheDtype: "f32" | "bf16";
  #compiled: CompiledModel | undefined;

  constructor(
    binding: NativeBinding,
    path: string,
    source: ModelSource,
    device: DeviceChoice,
    deviceNote: string | undefined,
    options: PrepareOptions,
  ) {
    this.#binding = binding;
    this.#path = path;
    const { checkpoint } = source;
    this.checkpoint = checkpoint;
    this.#device = device;
    this.#deviceNote = deviceNote;
    this.#numThreads = this.#withDevice(({ numThreads }) => numThreads);
    this.#options = options;
    const own = source.contextLength;
    const length = options.contextLength ?? Math.min(own, defaults.maxContext);
    this.#contextLength = checkInt("contextLength", length, 1, Number.isFinite(own) ? own : 1 << 24);
    this.#longRopeAfter = source.longRopeAfter;
    const dtypes = new Set([...checkpoint.tensors.values()].map(({ dtype }) => dtype));
    const { numerics, cache } = options;
    this.#numerics =
      numerics === undefined
        ? defaultNumerics(dtypes, device.info.kind)
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

  /** Opens the device for the length of a call only: what holds it, or what it met, is the engines' business. */
  #withDevice<T>(use: (device: NativeDevice) => T): T {
    const device = this.#openDevice();
    try {
      return use(device);
    } finally {
      device.close();
    }
  }
  #openDevice(): NativeDevice {
    const { info, threads, library } = this.#device;
    return new this.#binding.Device(info.kind, info.index, threads, library);
  }

  #compile(bounds: { maxStepTokens: number; maxSequences: number; maxLogitRows?: number }): CompiledModel {
    return this.#withDevice((device) =>
      compileModel(this.checkpoint, {
        ...bounds,
        kernels: device.kernels(),
        numerics: this.#numerics,
        cacheDtype: this.#cacheDtype,
        deterministic: this.#options.deterministic ?? false,
        contextLength: this.#contextLength,
        tokensPerBlock: tokensPerBlock[this.#device.info.kind],
        architectures: this.#options.architectures ?? [],
        panelBytes: (layout, columns) => device.panelBytes(layout, columns),
        panelRows: device.layouts()[0]?.panelRows ?? 1,
      }),
    );
  }

  /** What each step of a prompt's forward makes, beside the reference interpreter. */
  async *differences(prompt: string | readonly number[]): AsyncGenerator<StepDifference> {
    const tokens = Array.from(await this.text.encode(prompt, {}));
    const compiled = this.#compile({ maxStepTokens: tokens.length, maxSequences: 1, maxLogitRows: tokens.length });
    const device = this.#openDevice();
    try {
      yield* planDifferences(this.#binding, device, this.checkpoint, compiled, this.#contextLength, tokens);
    } finally {
      device.close();
    }
  }

  #maxStepTokens(value = this.#options.maxStepTokens): number {
    return checkInt(
      "maxStepTokens",
      value ?? Math.min(stepDefaults[this.#device.info.kind].tokens, Math.max(1, this.#contextLength)),
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
    const memory = this.memoryPlan(options, true);
    const compiled = this.compiled(
      this.#maxStepTokens(options.maxStepTokens),
      this.#maxSequences(options.maxSequences),
    );
    const key = createHash("sha256")
      .update(JSON.stringify([this.#device.info.kind, compiled.loadKey]))
      .digest("hex");
    const hostSlots = numHostSlots(options.cache, memory, this.#device.info.kind);
    return {
      device: {
        kind: this.#device.info.kind,
        index: this.#device.info.index,
        threads: this.#device.threads,
        cudaLibrary: this.#device.library,
      },
      plan: compiled.plan,
      layout: compiled.layout,
      outputs: compiled.outputs,
      weights: { tensors: compiled.tensors, origin: compiled.origin, key },
      cache: {
        groups: compiled.groups.map((spec) => ({ spec, numBlocks: memory.blocks, numHostSlots: hostSlots })),
        maxRows: compiled.maxSequences,
        maxTokens: this.#contextLength,
        prefixCaching: options.cache.prefixCache ?? true,
      },
      scheduling: {
        maxStepTokens: compiled.maxStepTokens,
        maxLogitRows: compiled.maxSequences,
        targetStepMs: checkNumber(
          "targetStepMs",
          options.targetStepMs ?? stepDefaults[this.#device.info.kind].targetMs,
          1,
          60_000,
        ),
        maxQueued: checkInt("maxQueuedRequests", options.maxQueuedRequests ?? defaults.maxQueued, 1),
      },
      policy: options.policy ?? "fcfs",
      tokenizer: this.text.shared(),
      checked: this.#options.checked ?? false,
      memory,
    };
  }

  /** Bytes that weights, cache and activations will take. @throws IX_OUT_OF_MEMORY when the cache's wish holds no block, or `mustFit` */
  memoryPlan(options: Pick<EngineOptions, "cache" | "maxStepTokens" | "maxSequences">, mustFit = false) {
    const compiled = this.compiled(
      this.#maxStepTokens(options.maxStepTokens),
      this.#maxSequences(options.maxSequences),
    );
    const { weightBytes, activationBytes, maxSequences } = compiled;
    const { kind, freeBytes, memoryBytes } = this.#withDevice((device) => device.info());
    const blockTokens = tokensPerBlock[kind];
    const blockBytes = compiled.groups.reduce((sum, group) => sum + group.bytesPerBlock, 0);
    const shape = { blockBytes, blockTokens, contextLength: this.#contextLength, maxSequences };
    const around = { kind, weightBytes, activationBytes, freeBytes, memoryBytes };
    const blocks = numBlocks(options.cache, shape, around);
    const cacheBytes = blocks * blockBytes;
    if (mustFit) checkFits(cacheBytes, shape, around);
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
    const { kind, name, arch } = this.#device.info;
    const note = this.#deviceNote;
    return {
      architecture: memory.architecture,
      path: this.#path,
      parameters: memory.parameters,
      vocabularySize: compiled.vocabularySize,
      contextLength: this.#contextLength,
      layers: compiled.layers,
      hiddenSize: compiled.hiddenSize,
      formats,
      device: { kind, name, arch, threads: this.#numThreads, ...(note === undefined ? {} : { note }) },
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
