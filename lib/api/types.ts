// The types of the public API: options, what a generation yields, and the figures that can be asked for.
// No behaviour lives here.

/** Where a model's step loop runs: a worker thread of its own (default), or the caller's thread. */
export type EngineThread = "worker" | "main";

/** `f32`: exact reference arithmetic. `fast`: bf16 or int8 activations where the weights' format has such kernels. */
export type Numerics = "f32" | "fast";

/** Element type of cached keys and values. `auto`: f32 with numerics `f32`, else bf16. */
export type CacheDtype = "auto" | "f32" | "bf16";

/** How much memory the KV cache takes. At most one of `bytes`, `share` and `blocks`. Default on a CPU: enough for 8 full contexts, at most a quarter of free memory; on a GPU: all that weights and activations leave but for 1 GB and 1 % of the GPU, at most `maxSequences` full contexts. */
export interface CacheOptions {
  /** Bytes. */
  bytes?: number;
  /** Share of the device's free memory, 0 < share <= 0.95. */
  share?: number;
  /** Number of blocks. */
  blocks?: number;
  /**
   * Bytes of locked host memory to which a GPU moves the blocks of preempted requests where that is faster than computing them again.
   * Default: a sixteenth of the host's memory, at most 4 GB and at most the size of the cache; 0 on a CPU.
   */
  swapBytes?: number;
  dtype?: CacheDtype;
  /** Reuse the computed prefix of earlier requests. Default true. */
  prefixCache?: boolean;
}

export type PolicyName = "fcfs" | "priority" | "fair" | "deadline";

export interface LoadProgress {
  phase: "read" | "compile" | "weights" | "ready";
  /** Bytes of weights packed so far, and in all. */
  loadedBytes: number;
  totalBytes: number;
}

export interface ModelOptions {
  /** `auto` chooses the best usable device that has kernels for the model and says which in `model.info.device`. `cpu` and `cuda` never fall back. Default `auto`. */
  device?: "auto" | "cpu" | "cuda";
  /** CPU threads. Default: physical cores that the process may use. */
  threads?: number;
  /** Most tokens of a sequence, prompt and answer together. Default: the model's own, at most 32768. */
  contextLength?: number;
  cache?: CacheOptions;
  /** Default: `fast` for block-quantized weights, and for bf16 weights on a GPU; else `f32`. */
  numerics?: Numerics;
  /**
   * A request's tokens and log-probabilities are the same to the bit whatever else runs, however its prompt is cut into steps, and after a
   * preemption; on one kind of device and one build, with a `seed` where it samples. On a CPU they always are. On a GPU it takes kernels that
   * take each sum in one order, and costs speed, most with few sequences of long context; `IX_NO_KERNEL` where there are none. Default false.
   */
  deterministic?: boolean;
  policy?: PolicyName;
  /** Requests that may wait before `IX_QUEUE_FULL`. Default 4096. */
  maxQueuedRequests?: number;
  /** Most new tokens in one step. Default 512 on a CPU, 4096 on a GPU. */
  maxStepTokens?: number;
  /** Most sequences in one step. Default 256. */
  maxSequences?: number;
  /** Length that a step of prompts aims at in milliseconds: how long an abort or a newcomer waits at most. Default 50 on a CPU, 100 on a GPU. Beside decoding sequences a step takes at most 1.8 times what they need, or 10 ms where that is more. */
  targetStepMs?: number;
  thread?: EngineThread;
  /** Architectures registered from outside the package. */
  architectures?: readonly import("../models/index.ts").Architecture[];
  /** Jinja source that replaces the checkpoint's chat template. */
  chatTemplate?: string;
  /** false: no scheduler is made, `generate` and `chat` are not available; for those who make their own. Default true. */
  scheduler?: boolean;
  /** Look for NaN after each operation (slow; for finding faults). Default false. */
  checked?: boolean;
  onProgress?: (progress: LoadProgress) => void;
  signal?: AbortSignal;
}

/**
 * A model of random weights. Every value is a function of the seed, the tensor's Hugging Face name and the element's place, the same on
 * every machine. With integers modulo 2^32: key = fnv1a32(UTF-8 of the name) ^ seed * 0x9e3779b9; for element i in row-major order
 * x = murmur3's finalizer of (i * 0x9e3779b1 + key), u = (x >>> 8) / 2^24. The value is (2u - 1) * sqrt(3 / last dimension) for two
 * dimensions and more, (2u - 1) * 0.02 for a vector whose name ends in "bias", else 1 + (2u - 1) * 0.1; computed in float64 and rounded
 * once, to nearest even, to the configuration's `torch_dtype` or `dtype`.
 */
export interface RandomModel {
  /** The contents of a config.json in Hugging Face's layout, of any known architecture. dtype: bfloat16 (default), float16, float32. */
  shape: Readonly<Record<string, unknown>>;
  /** 0 to 2^32 - 1. Default 0. */
  seed?: number;
}

/** Sampling parameters; the order of operations and the random draw are described in docs/plan.md. */
export interface SamplingOptions {
  /** 0 = greedy. Default: the checkpoint's generation_config, else 0. */
  temperature?: number;
  /** 0 = off. */
  topK?: number;
  /** 1 = off. */
  topP?: number;
  /** 0 = off. */
  minP?: number;
  /** 1 = off; prompt and generated tokens. */
  repetitionPenalty?: number;
  /** 0 = off; generated tokens. */
  presencePenalty?: number;
  /** 0 = off; generated tokens. */
  frequencyPenalty?: number;
  /** Token id to an addend of its logit; -Infinity forbids a token. */
  logitBias?: Readonly<Record<number, number>>;
  /** 64 bits. Same seed, same text, whatever else runs. Default: random. */
  seed?: number | bigint;
}

export interface GenerateOptions extends SamplingOptions {
  /** Most new tokens. Default: what the context leaves. */
  maxTokens?: number;
  /** Stop strings; the answer ends before the first one. */
  stop?: string | readonly string[];
  /** Token ids that end the answer besides the model's own end tokens. */
  stopTokens?: readonly number[];
  /** Go on past the model's end tokens. Default false. */
  ignoreEos?: boolean;
  /** Log-probabilities of each token and of this many alternatives, 0 to 20. Default: none. */
  logprobs?: number;
  /** Log-probabilities of the prompt's tokens, with this many alternatives, 0 to 20. Default: none. */
  promptLogprobs?: number;
  /** Lower runs first, if need be in the place of a running one that is higher (policy `priority`). Default 0. */
  priority?: number;
  /** Whom the request belongs to (policy `fair`); also keeps prefix caches apart. */
  tenant?: string;
  /** Milliseconds from now by which the answer is wanted (policy `deadline`). */
  deadlineMs?: number;
  /** Keep special tokens in the text. Default false. */
  keepSpecial?: boolean;
  /** Parse special tokens in a text prompt. Default false: a prompt's text never makes special tokens. */
  parseSpecial?: boolean;
  /** Add the tokenizer's begin-of-text token to a text prompt. Default true. */
  addSpecial?: boolean;
  signal?: AbortSignal;
}

export interface ChatMessage {
  role: string;
  content?: string | readonly { type: string; text?: string; [key: string]: unknown }[] | null;
  [key: string]: unknown;
}

export interface ChatOptions extends GenerateOptions {
  tools?: readonly unknown[];
  /** Default true. */
  addGenerationPrompt?: boolean;
  /** Go on with the last message instead of starting a new one. */
  continueFinalMessage?: boolean;
  /** More variables for the template. */
  templateVariables?: Readonly<Record<string, unknown>>;
}

export interface TokenLogprob {
  id: number;
  /** The token's text; U+FFFD where it is a partial character. */
  text: string;
  bytes: Uint8Array;
  /** Natural logarithm. */
  logprob: number;
}

export interface GeneratedToken {
  id: number;
  bytes: Uint8Array;
  logprob?: number;
  topLogprobs?: TokenLogprob[];
}

/** What one step brought: text that is final (stop strings are held back) and the tokens behind it. */
export interface GenerationChunk {
  text: string;
  tokens: GeneratedToken[];
}

export type FinishReason = "stop" | "length";

export interface Usage {
  promptTokens: number;
  completionTokens: number;
  /** Prompt tokens that came from the prefix cache. */
  cachedTokens: number;
}

/** Milliseconds; on one monotonic clock, from the call on. */
export interface Timings {
  queueMs: number;
  /** To the first token. */
  firstTokenMs: number;
  totalMs: number;
  /** Generated tokens a second after the first. */
  tokensPerSecond: number;
}

export interface PromptLogprob {
  id: number;
  /** null for the first token. */
  logprob: number | null;
  topLogprobs: TokenLogprob[];
}

export interface GenerationResult {
  text: string;
  tokens: GeneratedToken[];
  finishReason: FinishReason;
  /** The stop string or token id that ended it; null for the model's own end token or for `length`. */
  stopReason: string | number | null;
  usage: Usage;
  timings: Timings;
  promptLogprobs?: PromptLogprob[];
}

export interface ModelInfo {
  architecture: string;
  /** Path of the checkpoint; empty for random weights. */
  path: string;
  parameters: number;
  vocabularySize: number;
  contextLength: number;
  layers: number;
  hiddenSize: number;
  /** Weight format to number of tensors. */
  formats: Record<string, number>;
  /** `note`: why the GPU was not taken, where `auto` chose another device. */
  device: { kind: string; name: string; arch: string; threads: number; note?: string };
  numerics: Numerics;
  cacheDtype: "f32" | "bf16";
  weightBytes: number;
  cacheBytes: number;
  blockTokens: number;
  blocks: number;
}

/** What a model and its cache will take, told before anything is taken. */
export interface ModelPlan {
  architecture: string;
  parameters: number;
  /** Bytes of the packed weights, the KV cache, and activations with inputs. */
  weightBytes: number;
  cacheBytes: number;
  activationBytes: number;
  totalBytes: number;
  /** Free memory of the device now. */
  freeBytes: number;
  fits: boolean;
  bytesPerToken: number;
  /** Per cache group. */
  blocks: number;
  blockTokens: number;
}

/** Over all cache groups: a model with window layers has a group for each window, each with the plan's number of blocks. */
export interface CacheUsage {
  blocks: number;
  usedBlocks: number;
  /** Held only by the prefix cache; can be taken at any time. */
  cachedBlocks: number;
  freeBlocks: number;
  bytes: number;
  prefixQueries: number;
  prefixHits: number;
}

export interface SchedulerStats {
  running: number;
  waiting: number;
  steps: number;
  preemptions: number;
  /** Preemptions that kept what was computed, and the bytes that they moved between the device and the host. */
  swaps: number;
  swappedBytes: number;
  promptTokens: number;
  generatedTokens: number;
  /** Microseconds of TypeScript work per step, exponentially averaged. */
  hostMicrosPerStep: number;
  stepMs: number;
  cache: CacheUsage;
}
