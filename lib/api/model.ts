// The public Model: a checkpoint with its tokenizer and template, and, unless told otherwise, a scheduler that runs it.
import { InferxError } from "../base/errors.ts";
import { checkArray, checkBoolean, checkFunction, checkKeys, checkSignal } from "../base/options.ts";
import { type PreparedModel, prepareModel } from "../engine/prepare.ts";
import type { Generation } from "./generation.ts";
import { KVCache } from "./kv-cache.ts";
import { checkGenerateOptions } from "./request.ts";
import { Scheduler, type SchedulerOptions } from "./scheduler.ts";
import type {
  ChatMessage,
  ChatOptions,
  GenerateOptions,
  ModelInfo,
  ModelOptions,
  ModelPlan,
  RandomModel,
  SchedulerStats,
} from "./types.ts";

const optionKeys = [
  "device",
  "threads",
  "contextLength",
  "cache",
  "numerics",
  "deterministic",
  "policy",
  "maxQueuedRequests",
  "maxStepTokens",
  "maxSequences",
  "targetStepMs",
  "thread",
  "architectures",
  "chatTemplate",
  "onProgress",
  "signal",
  "scheduler",
  "checked",
] as const satisfies (keyof ModelOptions)[];

/**
 * A language model in this process.
 *
 * @example
 * await using model = await Model.load();              // the bundled model
 * const { text } = await model.generate("Once upon a time", { maxTokens: 40 });
 * for await (const { text } of model.chat("What is 12 + 30?")) process.stdout.write(text);
 */
export class Model implements AsyncDisposable {
  /** @internal */
  readonly prepared: PreparedModel;
  readonly #scheduler: Scheduler | undefined;
  #disposed = false;

  private constructor(prepared: PreparedModel, scheduler: ((model: Model) => Scheduler) | undefined) {
    this.prepared = prepared;
    this.#scheduler = scheduler?.(this);
  }

  /**
   * Loads a model: a Hugging Face folder, a `.gguf` file, or nothing for the bundled model. Or one of random weights, `{ shape, seed }`,
   * with nothing on disk and no tokenizer (prompts are token ids), to measure and test with: see `RandomModel`.
   * @throws IX_FILE_NOT_FOUND, IX_MODEL_FORMAT, IX_MODEL_CONFIG, IX_UNSUPPORTED_ARCHITECTURE, IX_UNSUPPORTED_FORMAT, IX_TOKENIZER,
   * IX_OUT_OF_MEMORY, IX_NO_DEVICE, IX_INVALID_ARGUMENT, IX_ABORTED
   */
  static async load(model?: string | RandomModel, options: ModelOptions = {}): Promise<Model> {
    const [prepared, cache] = await Model.#prepare(model, options);
    const { policy, maxQueuedRequests, maxStepTokens, maxSequences, targetStepMs, thread, onProgress, signal } =
      options;
    const given = { policy, maxQueuedRequests, maxStepTokens, maxSequences, targetStepMs, thread, onProgress, signal };
    const wanted = Object.fromEntries(
      Object.entries(given).filter(([, value]) => value !== undefined),
    ) as SchedulerOptions;
    if (options.scheduler !== undefined && !checkBoolean("scheduler", options.scheduler))
      return new Model(prepared, undefined);
    const loaded = new Model(prepared, (self) => new Scheduler(self, { ...wanted, cache }));
    await loaded.scheduler.ready;
    return loaded;
  }

  /** What a model and its cache will take, without loading it. Throws as `load` does, except for memory. */
  static async plan(model?: string | RandomModel, options: ModelOptions = {}): Promise<ModelPlan> {
    const [prepared, cache] = await Model.#prepare(model, options);
    return prepared.memoryPlan({
      cache: cache.options,
      maxStepTokens: options.maxStepTokens,
      maxSequences: options.maxSequences,
    });
  }

  static async #prepare(
    model: string | RandomModel | undefined,
    options: ModelOptions,
  ): Promise<[PreparedModel, KVCache]> {
    checkKeys("Model.load", options, optionKeys);
    if (model !== undefined && typeof model !== "string" && (typeof model !== "object" || model === null))
      throw new InferxError("IX_INVALID_ARGUMENT", "the model must be a path, { shape, seed } or left out");
    if (options.onProgress !== undefined) checkFunction("onProgress", options.onProgress);
    if (options.architectures !== undefined) checkArray("architectures", options.architectures);
    if (options.checked !== undefined) checkBoolean("checked", options.checked);
    if (options.deterministic !== undefined) checkBoolean("deterministic", options.deterministic);
    if (options.signal !== undefined) checkSignal("signal", options.signal);
    const cache = new KVCache(options.cache);
    if (options.signal?.aborted)
      throw new InferxError("IX_ABORTED", "loading was cancelled", {}, { cause: options.signal.reason });
    return [prepareModel(model, options), cache];
  }

  get info(): ModelInfo {
    return this.prepared.info(this.#scheduler?.memory ?? this.prepared.memoryPlan({ cache: {} }));
  }

  /** The scheduler that `generate` and `chat` use. */
  get scheduler(): Scheduler {
    if (!this.#scheduler)
      throw new InferxError(
        "IX_INVALID_ARGUMENT",
        "the model was loaded with scheduler: false; make one with `new Scheduler(model)`",
      );
    return this.#scheduler;
  }

  get cache(): KVCache {
    return this.scheduler.cache;
  }

  /** Continues a prompt, given as text or token ids. Await it for the whole answer or iterate it for a stream. */
  generate(prompt: string | readonly number[], options: GenerateOptions = {}): Generation {
    return this.scheduler.generation(options, async () => {
      checkGenerateOptions(options, "generate");
      return this.prepared.text.encode(prompt, options);
    });
  }

  /** Answers messages (a string is one user message) through the model's chat template. */
  chat(messages: string | readonly ChatMessage[], options: ChatOptions = {}): Generation {
    return this.scheduler.generation(options, async () => {
      checkGenerateOptions(options, "chat");
      return this.prepared.text.encodeChat(messages, options);
    });
  }

  /** Token ids of a text. Text that looks like a special token is plain text unless `parseSpecial`. */
  tokenize(text: string, options: { addSpecial?: boolean; parseSpecial?: boolean } = {}): number[] {
    checkKeys("tokenize", options, ["addSpecial", "parseSpecial"]);
    return Array.from(this.prepared.text.tokenize(text, options));
  }

  /** Text of token ids. */
  detokenize(tokens: readonly number[], options: { keepSpecial?: boolean } = {}): string {
    checkKeys("detokenize", options, ["keepSpecial"]);
    return this.prepared.text.detokenize(tokens, options.keepSpecial ?? false);
  }

  /** The text that `chat` would send to the model. */
  renderChat(messages: string | readonly ChatMessage[], options: ChatOptions = {}): string {
    return this.prepared.text.renderChat(messages, options);
  }

  stats(): Promise<SchedulerStats> {
    return this.scheduler.stats();
  }

  /** Cancels what runs (IX_DISPOSED) and returns the memory; resolves within a step. */
  async dispose(): Promise<void> {
    if (this.#disposed) return;
    this.#disposed = true;
    await this.#scheduler?.dispose();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose();
  }
}
