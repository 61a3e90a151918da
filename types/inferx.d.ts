// Generated from the build by scripts/check-api.mjs --write; not edited by hand.
//#region lib/ir/graph.d.ts
/**
 * A dimension. `T` tokens in the step, `R` sequences in the step, `S` rows that get logits: known at each step.
 * `P` sequences that may run at a time, `C` blocks of the longest context, `B` logit-bias entries in a step: limits, known when a plan is made.
 */
type Dim = number | "T" | "R" | "S" | "P" | "C" | "B";
/**
 * Arithmetic types of results and inputs. Weights have a checkpoint dtype ("bf16", "q4_k") and later a layout ("p32_q4_k"); caches "kv".
 * Builders and ops know float results as f32; passes/narrow.ts makes some of them bf16.
 */
type DataType = "f32" | "i32" | "u32" | "bf16";
/**
 * Rows of one checkpoint tensor, seen as a matrix: the last dimension is a row, all others are counted together; of a
 * one-dimensional tensor every element is a row. Rows are counted after `transposed` and `ropeHeads` were applied.
 */
interface RowSource {
  /** Name in the checkpoint; "" = rows of zeros. */
  readonly tensor: string;
  readonly rowStart: number;
  readonly rowCount: number;
  /** > 0: rows were permuted per head as GGUF's llama converter does (halves interleaved); row (h, half, j) is read from (h, j, half). */
  readonly ropeHeads: number;
  /** The tensor is stored [in, out]. */
  readonly transposed: boolean;
  /** 1 is added to every element (after `scale`). */
  readonly addOne: boolean;
  readonly scale: number;
}
interface ValueBase {
  /** For people: the checkpoint's name of a weight, the name of an input. Results are numbered by the printer. */
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly Dim[];
}
/** Written by the host: staged anew for each step, or (`persistent`) kept on the device and updated in parts. */
interface InputValue extends ValueBase {
  readonly kind: "input";
  readonly dtype: DataType;
  readonly persistent: boolean;
}
/** A matrix [N, K], a stack of them [E, N, K] or a vector [D]; the sources give its rows in order: this list is the load program. */
interface WeightValue extends ValueBase {
  readonly kind: "weight";
  readonly shape: readonly number[];
  readonly sources: readonly RowSource[];
}
interface ConstantValue extends ValueBase {
  readonly kind: "constant";
  readonly dtype: "f32";
  readonly shape: readonly number[];
  readonly data: Float32Array;
}
/** The state of one layer's KV cache at one moment; `kv_write` makes the next one. Shape: [KV heads, head width]. */
interface CacheValue extends ValueBase {
  readonly kind: "cache";
  readonly group: number;
  readonly layer: number;
}
interface ResultValue extends ValueBase {
  readonly kind: "result";
}
type Value = InputValue | WeightValue | ConstantValue | CacheValue | ResultValue;
/** The programs of a plan, in the order in which a step runs them. */
declare const programs: readonly ["forward", "sample"];
type Program = (typeof programs)[number];
interface Node {
  readonly op: string;
  /** In the order of the op's signature; undefined = an omitted optional operand. */
  readonly operands: readonly (Value | undefined)[];
  /** The signature's scalars by name. */
  readonly attrs: Readonly<Record<string, number>>;
  readonly outputs: readonly Value[];
  /** For dumps and traces: "model.layers.0.self_attn.q_proj". */
  readonly name: string;
  readonly program: Program;
  /** The place of the chosen kernel in the list of kernels, set by select-kernels. */
  readonly kernel?: number;
}
interface CacheGroup {
  readonly kind: "full" | "window";
  /** Newest positions that a query of a window layer sees, itself included; 0 for `full`. */
  readonly window: number;
  readonly layers: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly slots: InputValue;
  readonly blockTable: InputValue;
}
/** How a builder declares a group. */
interface CacheOptions$1 {
  kind: "full" | "window";
  /** Newest positions that a query sees, itself included; only for "window". */
  window?: number;
  /** How many layers share the group's slots and block table. */
  layers: number;
  kvHeads: number;
  headDim: number;
}
interface Graph {
  readonly inputs: readonly InputValue[];
  /** In an order in which every value is made before it is used; the nodes of `forward` come before those of `sample`. */
  readonly nodes: readonly Node[];
  readonly groups: readonly CacheGroup[];
  readonly outputs: ReadonlyMap<string, Value>;
}
/** What the builder must know of a checkpoint's tensor. */
interface CheckpointTensor {
  readonly dtype: string;
  readonly shape: readonly number[];
  /**
   * Where the rows lie if not simply in the tensor of the same name: GGUF readers give the file's own tensor name here, `ropeHeads`
   * for its permuted q/k, and `rowStart` for one expert's part of a stacked tensor.
   */
  readonly source?: Partial<Pick<RowSource, "tensor" | "ropeHeads" | "rowStart">>;
  /** The stored values already have 1 added (GGUF's gemma norms): the builder's `addOne` then adds nothing. */
  readonly oneAdded?: boolean;
}
/** Tensors by the name that architectures use (the Hugging Face names). */
type Checkpoint = ReadonlyMap<string, CheckpointTensor>;
//#endregion
//#region lib/ir/graph-state.d.ts
declare class GraphState {
  #private;
  readonly checkpoint: Checkpoint;
  readonly groups: CacheGroup[];
  readonly outputs: Map<string, Value>;
  constructor(checkpoint: Checkpoint);
  addInput(name: string, dtype: DataType, shape: readonly Dim[], persistent?: boolean): InputValue;
  input(name: string): InputValue;
  /** The checkpoint's tensor; the same value for every use. */
  weight(name: string): WeightValue;
  hasOneAdded(tensor: string): boolean;
  cacheGroup({
    kind,
    window,
    layers,
    kvHeads,
    headDim
  }: CacheOptions$1): CacheValue[];
  append(node: Omit<Node, "outputs">): Value[];
  finish(): Graph;
}
//#endregion
//#region lib/ir/weight-scope.d.ts
declare class WeightScope {
  #private;
  /** Put before the names of weights and nodes: "model.layers.3". */
  readonly prefix: string;
  protected readonly state: GraphState;
  constructor(state: GraphState, prefix: string);
  /** Does the checkpoint have this tensor, as named or with ".weight" after the name? */
  has(name: string): boolean;
  /**
   * The tensor `<prefix>.<name>.weight`, or `<prefix>.<name>` where that exists (so biases are `weight("q_proj.bias")`).
   * @throws IX_MODEL_FORMAT when the checkpoint has neither.
   */
  weight(name: string): WeightValue;
  /** For a tied head: `g.weightOptional("lm_head") ?? g.weight("model.embed_tokens")`; the same tensor is the same value. */
  weightOptional(name: string): WeightValue | undefined;
  /** The tensor `<prefix>.<name>.bias`. */
  biasOptional(name: string): WeightValue | undefined;
  /** A matrix stored [in, out] (gpt2's Conv1D) as [out, in]. */
  transposed(name: string): WeightValue;
  /**
   * The stacked matrices [E, N, K] of `<name>.<e>.<part>.weight`, e < count; of several parts each expert has the parts' rows in
   * order: `experts("mlp.experts", 8, ["gate_proj", "up_proj"])` is [8, 2F, K], ready for `gatedAct` with groups = experts per token.
   */
  experts(name: string, count: number, parts: readonly string[]): WeightValue;
  concatRows(weights: readonly WeightValue[]): WeightValue;
  /** Rows `start` … `start + count - 1`, or elements of a vector. */
  sliceRows(weight: WeightValue, start: number, count: number): WeightValue;
  /** 1 + w, for norms that are stored as the difference to 1. */
  addOne(weight: WeightValue): WeightValue;
  /** A weight times a number, at load. */
  scaleWeight(weight: WeightValue, factor: number): WeightValue;
  protected path(name: string): string;
}
//#endregion
//#region lib/ir/builder.d.ts
type Activation = "silu" | "gelu" | "gelu_tanh" | "relu" | "quick_gelu" | "sigmoid" | "tanh";
interface AttentionOptions {
  /** Query heads. */
  heads: number;
  /** Factor of q·k, usually 1 / sqrt(head width). */
  scale: number;
  /** Newest positions that a query sees, itself included; default: the cache group's window (0 = all). */
  window?: number;
  /** cap * tanh(score / cap); default 0 = none. */
  softcap?: number;
  /** f32 [heads]: logits of a sink that takes part in the softmax and has no value. */
  sinks?: Value | undefined;
}
interface RouteOptions {
  /** Experts per token. */
  top: number;
  /** How weights come from logits: softmax over all then top, top then softmax over those, sigmoid. Default "softmax". */
  scoring?: "softmax" | "top_softmax" | "sigmoid";
  /** Divide the chosen weights by their sum; default false. */
  renormalize?: boolean;
  /** Factor of the weights; default 1. */
  factor?: number;
}
declare class Builder extends WeightScope {
  /** Number of the layer within `layers`; 0 outside. */
  readonly index: number;
  /** `createBuilder` makes the first one. */
  constructor(state: GraphState, prefix: string, index: number);
  /** A builder whose weight names begin with `<this prefix>.<name>`. */
  scope(name: string, index?: number): Builder;
  /** One builder per layer, prefixes `<prefix>.0`, `<prefix>.1`, ... */
  layers(count: number, prefix: string): Builder[];
  /** A value that the engine can read after the step: "logits" f32 [S, V], "hidden" f32 [S, D], ... */
  output(name: string, value: Value): Value;
  /** The graph so far. */
  finish(): Graph;
  /** i32 [T] token ids. */
  get tokens(): InputValue;
  /** i32 [T] absolute positions. */
  get positions(): InputValue;
  /** i32 [T] row of inv_freq that a token's rotation uses (longrope); zeros otherwise. */
  get ropeRow(): InputValue;
  /** i32 [S] rows of the step that get logits. */
  get rowIndex(): InputValue;
  /** A further input that the host stages at each step. */
  input(name: string, dtype: DataType, shape: readonly Dim[]): InputValue;
  /** Declares a group of cache layers and gives each layer's cache in its first state; hand one to each layer's `kvWrite`. */
  cacheGroup(options: CacheOptions$1): CacheValue[];
  /** Stores k and v [T, KV heads * head width]; `attention` must be given the result. */
  kvWrite(cache: CacheValue, k: Value, v: Value): CacheValue;
  /** q [T, heads * head width] over the cache, which holds this step's tokens already. */
  attention(q: Value, cache: CacheValue, options: AttentionOptions): Value;
  /** A small table of numbers that the plan carries. */
  constant(name: string, shape: readonly number[], data: ArrayLike<number>): Value;
  /** Rows of `w` [V, D]; ids i32 [T]. */
  embed(ids: Value, w: WeightValue): Value;
  /** x [T, K] times w [N, K] transposed, plus bias [N]. */
  linear(x: Value, w: WeightValue, bias?: WeightValue): Value;
  /** `linear` with the checkpoint's `<name>.weight` and, if there is one, `<name>.bias`. */
  project(x: Value, name: string): Value;
  /** w [D / groups] or none; `groups` = heads for q/k norms. */
  rmsNorm(x: Value, w: WeightValue | undefined, eps: number, groups?: number): Value;
  layerNorm(x: Value, w: WeightValue | undefined, b: WeightValue | undefined, eps: number, groups?: number): Value;
  /** b may also be [1, D] or [T, 1], as in `mul`, `sub`, `div` and `max`. */
  add(a: Value, b: Value): Value;
  mul(a: Value, b: Value): Value;
  /** x itself where factor is 1. */
  scale(x: Value, factor: number): Value;
  /** cap * tanh(x / cap). */
  softcap(x: Value, cap: number): Value;
  act(x: Value, activation: Activation): Value;
  /** act(gate) * up. */
  actMul(gate: Value, up: Value, activation: Activation): Value;
  /** x holds per group F gates, then F ups; the result has groups * F columns. */
  gatedAct(x: Value, activation: Activation, groups?: number): Value;
  /** Rows of x by i32 [S]. */
  gather(x: Value, rows: Value): Value;
  /** Columns `start` … `start + count - 1` of x: a view. */
  columns(x: Value, start: number, count: number): Value;
  concat(a: Value, b: Value): Value;
  /**
   * Cosines and sines [T, 2H] of this step's positions. `invFreq`: P rows of H inverse frequencies (usually one row; `ropeRow` picks),
   * `factor`: one per row, default 1. Make one per distinct table, not one per layer.
   */
  ropeTable(invFreq: readonly ArrayLike<number>[], factor?: readonly number[]): Value;
  /** Rotates the first 2H columns of every head; `interleaved` pairs (2i, 2i+1), default pairs (i, i + H). */
  rope(x: Value, table: Value, heads: number, interleaved?: boolean): Value;
  /** From router logits [T, E]: experts i32 [T, k] and weights f32 [T, k]. */
  moeRoute(logits: Value, options: RouteOptions): [experts: Value, weights: Value];
  /** w [E, N, K]. x is [T, K], or with `perSlot` [T, k * K] (each slot's own input). Result [T, k * N]. */
  moeLinear(x: Value, experts: Value, w: WeightValue, perSlot?: boolean): Value;
  /** Weighted sum over the k slots of y [T, k * D]. */
  moeCombine(y: Value, weights: Value): Value;
  /** Slow primitives of one operand. */
  primitive(op: "exp" | "neg" | "recip" | "sqrt" | "rsqrt" | "tanh" | "reduce_sum" | "reduce_max" | "softmax", x: Value): Value;
  /** Slow primitives of two operands. */
  primitive2(op: "sub" | "div" | "max", a: Value, b: Value): Value;
  /** Any op by its name: operands in the signature's order, scalars by name. */
  op(op: string, operands: Node["operands"], attrs?: Node["attrs"], name?: string, program?: Program): Value[];
}
//#endregion
//#region lib/models/config.d.ts
/** One key: how its value is checked, and what stands for it when it is absent. JSON's null counts as absent. */
declare class Key<T> {
  #private;
  readonly wanted: string;
  constructor(wanted: string, parse: (value: unknown, name: string) => T | undefined, absent?: (name: string) => T);
  /** The key may be absent: undefined then. */
  get optional(): Key<T | undefined>;
  /** The value that stands for an absent key. */
  default(value: T): Key<T>;
  /** Errors: IX_MODEL_CONFIG. */
  read(value: unknown, name: string): T;
}
type Keys = Record<string, Key<unknown>>;
/** The values that a set of keys yields. */
type Values<K extends Keys> = { [Name in keyof K]: K[Name] extends Key<infer T> ? T : never };
//#endregion
//#region lib/models/architecture.d.ts
/** An architecture that a model can be loaded with. */
interface Architecture {
  /** Values of `architectures` in config.json: "LlamaForCausalLM". */
  readonly names: readonly string[];
  /**
   * Adds the model to the graph, with the outputs "logits" f32 [S, V] and, where the model has it, "hidden" f32 [S, D] (what the
   * output matrix sees). `config` is the normalised configuration. Errors: IX_MODEL_CONFIG, IX_MODEL_FORMAT (a tensor is missing).
   */
  readonly build: (g: Builder, config: object) => void;
}
/**
 * Describes an architecture. `build` gets the checked values of `config`'s keys and returns the logits f32 [S, V].
 *
 * @example
 * const mine = architecture("MineForCausalLM", {
 *   config: { num_hidden_layers: int, norm_eps: float.default(1e-5) },
 *   build(g, c) { ... return g.linear(x, g.weight("lm_head")); },
 * });
 */
declare function architecture<K extends Keys>(names: string | readonly string[], definition: {
  config: K;
  build: (g: Builder, c: Values<K>) => Value;
}): Architecture;
//#endregion
//#region lib/api/types.d.ts
/** Where a model's step loop runs: a worker thread of its own (default), or the caller's thread. */
type EngineThread = "worker" | "main";
/** `f32`: exact reference arithmetic. `fast`: bf16 or int8 activations where the weights' format has such kernels. */
type Numerics = "f32" | "fast";
/** Element type of cached keys and values. `auto`: f32 with numerics `f32`, else bf16. */
type CacheDtype = "auto" | "f32" | "bf16";
/** How much memory the KV cache takes. At most one of `bytes`, `share` and `blocks`. Default on a CPU: enough for 8 full contexts, at most a quarter of free memory; on a GPU: all that weights and activations leave but for 1 GB and 1 % of the GPU, at most `maxSequences` full contexts. */
interface CacheOptions {
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
type PolicyName = "fcfs" | "priority" | "fair" | "deadline";
interface LoadProgress {
  phase: "read" | "compile" | "weights" | "ready";
  /** Bytes of weights packed so far, and in all. */
  loadedBytes: number;
  totalBytes: number;
}
interface ModelOptions {
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
  architectures?: readonly Architecture[];
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
interface RandomModel {
  /** The contents of a config.json in Hugging Face's layout, of any known architecture. dtype: bfloat16 (default), float16, float32. */
  shape: Readonly<Record<string, unknown>>;
  /** 0 to 2^32 - 1. Default 0. */
  seed?: number;
}
/** Sampling parameters; the order of operations and the random draw are described in docs/plan.md. */
interface SamplingOptions {
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
interface GenerateOptions extends SamplingOptions {
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
interface ChatMessage {
  role: string;
  content?: string | readonly {
    type: string;
    text?: string;
    [key: string]: unknown;
  }[] | null;
  [key: string]: unknown;
}
interface ChatOptions extends GenerateOptions {
  tools?: readonly unknown[];
  /** Default true. */
  addGenerationPrompt?: boolean;
  /** Go on with the last message instead of starting a new one. */
  continueFinalMessage?: boolean;
  /** More variables for the template. */
  templateVariables?: Readonly<Record<string, unknown>>;
}
interface TokenLogprob {
  id: number;
  /** The token's text; U+FFFD where it is a partial character. */
  text: string;
  bytes: Uint8Array;
  /** Natural logarithm. */
  logprob: number;
}
interface GeneratedToken {
  id: number;
  bytes: Uint8Array;
  logprob?: number;
  topLogprobs?: TokenLogprob[];
}
/** What one step brought: text that is final (stop strings are held back) and the tokens behind it. */
interface GenerationChunk {
  text: string;
  tokens: GeneratedToken[];
}
type FinishReason = "stop" | "length";
interface Usage {
  promptTokens: number;
  completionTokens: number;
  /** Prompt tokens that came from the prefix cache. */
  cachedTokens: number;
}
/** Milliseconds; on one monotonic clock, from the call on. */
interface Timings {
  queueMs: number;
  /** To the first token. */
  firstTokenMs: number;
  totalMs: number;
  /** Generated tokens a second after the first. */
  tokensPerSecond: number;
}
interface PromptLogprob {
  id: number;
  /** null for the first token. */
  logprob: number | null;
  topLogprobs: TokenLogprob[];
}
interface GenerationResult {
  text: string;
  tokens: GeneratedToken[];
  finishReason: FinishReason;
  /** The stop string or token id that ended it; null for the model's own end token or for `length`. */
  stopReason: string | number | null;
  usage: Usage;
  timings: Timings;
  promptLogprobs?: PromptLogprob[];
}
interface ModelInfo {
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
  device: {
    kind: string;
    name: string;
    arch: string;
    threads: number;
    note?: string;
  };
  numerics: Numerics;
  cacheDtype: "f32" | "bf16";
  weightBytes: number;
  cacheBytes: number;
  blockTokens: number;
  blocks: number;
}
/** What a model and its cache will take, told before anything is taken. */
interface ModelPlan {
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
interface CacheUsage {
  blocks: number;
  usedBlocks: number;
  /** Held only by the prefix cache; can be taken at any time. */
  cachedBlocks: number;
  freeBlocks: number;
  bytes: number;
  prefixQueries: number;
  prefixHits: number;
}
interface SchedulerStats {
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
//#endregion
//#region lib/api/generation.d.ts
/**
 * An answer: `for await (const chunk of generation)` streams it, `await generation` gives the whole. Both may be used, and
 * leaving the loop early aborts.
 * Errors: IX_ABORTED (with `details.text` and `details.tokens` as far as they came), and those of `generate`.
 */
declare class Generation implements AsyncIterable<GenerationChunk>, PromiseLike<GenerationResult> {
  #private;
  /** Never reused within the process. */
  readonly id: number;
  /** Ends the request within one step. What came so far is in the error's details. */
  abort(reason?: unknown): void;
  then<A = GenerationResult, B = never>(onResult?: ((result: GenerationResult) => A | PromiseLike<A>) | null, onError?: ((error: unknown) => B | PromiseLike<B>) | null): Promise<A | B>;
  [Symbol.asyncIterator](): AsyncGenerator<GenerationChunk, void, undefined>;
}
//#endregion
//#region lib/api/kv-cache.d.ts
/** A prefix that stays in the cache until it is released. */
interface PinnedPrefix {
  /** Tokens kept: whole blocks only. */
  readonly tokens: number;
  release(): Promise<void>;
}
/** A paged KV cache; memory is taken when a scheduler is made with it, which it then belongs to. */
declare class KVCache {
  #private;
  readonly options: Readonly<CacheOptions>;
  /** @throws IX_INVALID_ARGUMENT */
  constructor(options?: CacheOptions);
  /** Blocks in use, kept for reuse and free. */
  usage(): Promise<CacheUsage>;
  /**
   * Another continuation of a generation from where it is now: prompt and answer so far become the prompt of a new one, whose cache
   * blocks are shared until either side writes into them.
   */
  fork(generation: Generation, options?: GenerateOptions): Generation;
  /**
   * Computes a prompt's prefix, unless it is cached, and keeps its whole blocks until `release`.
   * @throws IX_KV_EXHAUSTED when it would leave too little room for the requests that run
   */
  pin(prompt: string | readonly number[], options?: Pick<GenerateOptions, "addSpecial" | "parseSpecial" | "tenant">): Promise<PinnedPrefix>;
  /** Forgets all cached prefixes and pins; running requests keep their blocks. */
  clear(): Promise<void>;
}
//#endregion
//#region lib/base/errors.d.ts
/** Stable error codes and the advice that belongs to each. C++ throws the same codes (checked in test/unit/errors.test.ts). */
declare const errorAdvice: {
  readonly IX_INVALID_ARGUMENT: "Check the argument named in the message.";
  readonly IX_INTERNAL: "This is a bug in inferx; please report it with the message.";
  readonly IX_ABORTED: "The caller cancelled the operation.";
  readonly IX_DISPOSED: "The object was disposed; load or create it again.";
  readonly IX_NATIVE_MISSING: "Run `npm rebuild inferx` (needs cmake and a C++20 compiler), or `npx inferx doctor`.";
  readonly IX_NATIVE_MISMATCH: "The addon and the JavaScript come from different builds; run `npm rebuild inferx`.";
  readonly IX_FILE_NOT_FOUND: "Check the path; a model is a folder with config.json, a .gguf file, or nothing for the bundled model.";
  readonly IX_FILE_READ: "The file could not be read; check permissions and the disk.";
  readonly IX_FILE_CHANGED: "The file changed while it was in use; load the model again.";
  readonly IX_MODEL_FORMAT: "The model file is damaged or not in the format its name says; download or convert it again.";
  readonly IX_MODEL_CONFIG: "The model's configuration is incomplete or contradictory; compare config.json with the publisher's.";
  readonly IX_UNSUPPORTED_ARCHITECTURE: "Register the architecture with `architecture()`, or see docs/adding/model.md.";
  readonly IX_UNSUPPORTED_FORMAT: "Convert the weights to a supported format (see the README's table).";
  readonly IX_TOKENIZER: "The tokenizer's file is incomplete or of an unknown kind; see the README's table.";
  readonly IX_TEMPLATE: "The chat template refused these messages; see the message, or pass another template.";
  readonly IX_CONTEXT_OVERFLOW: "Shorten the prompt, lower maxTokens, or load the model with a larger contextLength.";
  readonly IX_KV_EXHAUSTED: "The request needs more KV blocks than the cache has; raise `cache.bytes` or shorten the request.";
  readonly IX_QUEUE_FULL: "Too many requests are waiting; retry later or raise `maxQueuedRequests`.";
  readonly IX_OUT_OF_MEMORY: "Choose a smaller model, format or cache; `Model.plan()` tells what is needed.";
  readonly IX_NO_DEVICE: "Run `npx inferx doctor` to see which devices were found and what is missing.";
  readonly IX_DEVICE: "The device reported an error; load the model again.";
  readonly IX_NO_KERNEL: "The backend lacks a kernel for this operation; list it in `fallbackOps` or choose another backend.";
  readonly IX_PLAN: "The plan failed verification; this is a bug in inferx unless the plan was made by hand.";
  readonly IX_WORKER_DIED: "The engine's worker thread ended unexpectedly; load the model again.";
};
type ErrorCode = keyof typeof errorAdvice;
declare const brand: unique symbol;
/** What crosses thread borders in place of an error. */
interface ErrorData {
  code: ErrorCode;
  message: string;
  details?: Record<string, unknown>;
}
/**
 * The only error type that inferx throws on purpose.
 * `code` is stable across releases; `advice` says what to do; `details` holds figures (offsets, limits, sizes).
 */
declare class InferxError extends Error {
  readonly code: ErrorCode;
  readonly details: Record<string, unknown>;
  readonly [brand] = true;
  constructor(code: ErrorCode, message: string, details?: Record<string, unknown>, options?: ErrorOptions);
  /** What to do about it, one sentence. */
  get advice(): string;
  /** True for an InferxError of this or of another copy of the package. */
  static is(value: unknown): value is InferxError;
  toJSON(): ErrorData;
}
//#endregion
//#region lib/engine/protocol.d.ts
type SchedulerEventName = "admit" | "finish" | "preempt";
//#endregion
//#region lib/api/scheduler.d.ts
interface SchedulerOptions {
  /** Default: a cache of its own with the defaults of `CacheOptions`. */
  cache?: KVCache;
  /** Default `fcfs`. */
  policy?: PolicyName;
  maxQueuedRequests?: number;
  maxStepTokens?: number;
  maxSequences?: number;
  targetStepMs?: number;
  /** Where its loop runs. Default `worker`. */
  thread?: EngineThread;
  onProgress?: (progress: LoadProgress) => void;
  signal?: AbortSignal;
}
/** A request for `Scheduler.add`: a prompt as text or token ids, and how to answer it. */
interface SchedulerRequest extends GenerateOptions {
  prompt: string | readonly number[];
}
type Listener = (id: number) => void;
/** Continuous batching over one model: requests are added at any time and share the steps. */
declare class Scheduler implements AsyncDisposable {
  #private;
  readonly policy: PolicyName;
  readonly cache: KVCache;
  /** Resolves when the engine runs; rejects with what kept it from running. Requests may be added before. */
  readonly ready: Promise<void>;
  /** @throws IX_INVALID_ARGUMENT; IX_OUT_OF_MEMORY when cache and weights do not fit. Loading errors come through `ready`. */
  constructor(model: Model, options?: SchedulerOptions);
  /** Queues a request. Never throws: what is wrong with it rejects the generation. */
  add(request: SchedulerRequest): Generation;
  stats(): Promise<SchedulerStats>;
  /** Calls `listener` with a request's id when it is admitted, finished or preempted. Returns a function that ends this. */
  on(event: SchedulerEventName, listener: Listener): () => void;
  /** Cancels all requests (IX_DISPOSED) and frees cache and activations; resolves within a step. */
  dispose(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}
//#endregion
//#region lib/api/model.d.ts
/**
 * A language model in this process.
 *
 * @example
 * await using model = await Model.load();              // the bundled model
 * const { text } = await model.generate("Once upon a time", { maxTokens: 40 });
 * for await (const { text } of model.chat("What is 12 + 30?")) process.stdout.write(text);
 */
declare class Model implements AsyncDisposable {
  #private;
  private constructor();
  /**
   * Loads a model: a Hugging Face folder, a `.gguf` file, or nothing for the bundled model. Or one of random weights, `{ shape, seed }`,
   * with nothing on disk and no tokenizer (prompts are token ids), to measure and test with: see `RandomModel`.
   * @throws IX_FILE_NOT_FOUND, IX_MODEL_FORMAT, IX_MODEL_CONFIG, IX_UNSUPPORTED_ARCHITECTURE, IX_UNSUPPORTED_FORMAT, IX_TOKENIZER,
   * IX_OUT_OF_MEMORY, IX_NO_DEVICE, IX_INVALID_ARGUMENT, IX_ABORTED
   */
  static load(model?: string | RandomModel, options?: ModelOptions): Promise<Model>;
  /** What a model and its cache will take, without loading it. Throws as `load` does, except for memory. */
  static plan(model?: string | RandomModel, options?: ModelOptions): Promise<ModelPlan>;
  get info(): ModelInfo;
  /** The scheduler that `generate` and `chat` use. */
  get scheduler(): Scheduler;
  get cache(): KVCache;
  /** Continues a prompt, given as text or token ids. Await it for the whole answer or iterate it for a stream. */
  generate(prompt: string | readonly number[], options?: GenerateOptions): Generation;
  /** Answers messages (a string is one user message) through the model's chat template. */
  chat(messages: string | readonly ChatMessage[], options?: ChatOptions): Generation;
  /** Token ids of a text. Text that looks like a special token is plain text unless `parseSpecial`. */
  tokenize(text: string, options?: {
    addSpecial?: boolean;
    parseSpecial?: boolean;
  }): number[];
  /** Text of token ids. */
  detokenize(tokens: readonly number[], options?: {
    keepSpecial?: boolean;
  }): string;
  /** The text that `chat` would send to the model. */
  renderChat(messages: string | readonly ChatMessage[], options?: ChatOptions): string;
  stats(): Promise<SchedulerStats>;
  /** Cancels what runs (IX_DISPOSED) and returns the memory; resolves within a step. */
  dispose(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}
//#endregion
export { type Architecture, type CacheOptions, type CacheUsage, type ChatMessage, type ChatOptions, type ErrorCode, type GenerateOptions, type GeneratedToken, Generation, type GenerationChunk, type GenerationResult, InferxError, KVCache, type LoadProgress, Model, type ModelInfo, type ModelOptions, type ModelPlan, type PinnedPrefix, type PromptLogprob, type RandomModel, type SamplingOptions, Scheduler, type SchedulerOptions, type SchedulerRequest, type SchedulerStats, type Timings, type TokenLogprob, type Usage, architecture };
