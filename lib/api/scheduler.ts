// The public Scheduler: one engine with a cache and a policy, over the weights of a model.
import { InferxError } from "../base/errors.ts";
import { checkChoice, checkFunction, checkKeys, checkObject, checkSignal } from "../base/options.ts";
import { EngineClient, nextRequestId } from "../engine/client.ts";
import type { MemoryPlan, PreparedModel } from "../engine/prepare.ts";
import { policyNames, type SchedulerEventName } from "../engine/protocol.ts";
import { Generation } from "./generation.ts";
import { KVCache } from "./kv-cache.ts";
import type { Model } from "./model.ts";
import { checkGenerateOptions, completeRequest } from "./request.ts";
import type { CacheUsage, EngineThread, GenerateOptions, LoadProgress, PolicyName, SchedulerStats } from "./types.ts";

export interface SchedulerOptions {
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
export interface SchedulerRequest extends GenerateOptions {
  prompt: string | readonly number[];
}

type Listener = (id: number) => void;

const optionKeys = [
  "cache",
  "policy",
  "maxQueuedRequests",
  "maxStepTokens",
  "maxSequences",
  "targetStepMs",
  "thread",
  "onProgress",
  "signal",
] as const satisfies (keyof SchedulerOptions)[];

/** Continuous batching over one model: requests are added at any time and share the steps. */
export class Scheduler implements AsyncDisposable {
  readonly policy: PolicyName;
  readonly cache: KVCache;
  /** Resolves when the engine runs; rejects with what kept it from running. Requests may be added before. */
  readonly ready: Promise<void>;
  /** @internal */
  readonly memory: MemoryPlan;
  readonly #prepared: PreparedModel;
  readonly #cacheTokens: number;
  readonly #client: Promise<EngineClient>;
  readonly #listeners: Record<SchedulerEventName, Set<Listener>> = {
    admit: new Set(),
    finish: new Set(),
    preempt: new Set(),
  };
  readonly #loading = new AbortController();
  #open: EngineClient | undefined;

  /** @throws IX_INVALID_ARGUMENT; IX_OUT_OF_MEMORY when cache and weights do not fit. Loading errors come through `ready`. */
  constructor(model: Model, options: SchedulerOptions = {}) {
    checkKeys("Scheduler", options, optionKeys);
    if (options.onProgress !== undefined) checkFunction("onProgress", options.onProgress);
    if (options.signal !== undefined) checkSignal("signal", options.signal);
    if (options.cache !== undefined && !(options.cache instanceof KVCache))
      throw new InferxError("IX_INVALID_ARGUMENT", "cache must be a KVCache", { option: "cache" });
    const thread = checkChoice("thread", options.thread ?? "worker", ["worker", "main"]);
    this.#prepared = model.prepared;
    this.policy = checkChoice("policy", options.policy ?? "fcfs", policyNames);
    this.cache = options.cache ?? new KVCache();
    const config = this.#prepared.engineConfig({
      cache: this.cache.options,
      policy: this.policy,
      maxQueuedRequests: options.maxQueuedRequests,
      maxStepTokens: options.maxStepTokens,
      maxSequences: options.maxSequences,
      targetStepMs: options.targetStepMs,
    });
    this.memory = config.memory;
    this.#cacheTokens = Math.min(...config.cache.groups.map(({ spec, numBlocks }) => numBlocks * spec.tokensPerBlock));
    this.cache.attach(this);
    const signal = options.signal ? AbortSignal.any([options.signal, this.#loading.signal]) : this.#loading.signal;
    this.#client = EngineClient.start(config, {
      thread,
      onProgress: (loadedBytes, totalBytes) => options.onProgress?.({ phase: "weights", loadedBytes, totalBytes }),
      onEvent: (event, id) => this.#emit(event, id),
      signal,
    });
    this.ready = this.#client.then((client) => {
      this.#open = client;
      const wanted = Object.values(this.#listeners).some((set) => set.size > 0);
      if (wanted) client.wantEvents(true);
      const { weightBytes } = this.memory;
      options.onProgress?.({ phase: "ready", loadedBytes: weightBytes, totalBytes: weightBytes });
    });
    this.ready.catch(() => {}); // whoever awaits it or a request hears of it
  }

  /** Queues a request. Never throws: what is wrong with it rejects the generation. */
  add(request: SchedulerRequest): Generation {
    return this.generation(request, async () => {
      checkObject("the request", request);
      const { prompt, ...options } = request;
      checkGenerateOptions(options, "generate");
      return this.#prepared.text.encode(prompt, options);
    });
  }

  /** @internal A generation over tokens that `encode` gives; `forkOf` continues another one. */
  generation(options: GenerateOptions, encode: () => Promise<Int32Array> | Int32Array, forkOf?: number): Generation {
    const id = nextRequestId();
    const cacheTokens = this.#cacheTokens;
    return new Generation({
      id,
      signal: options?.signal instanceof AbortSignal ? options.signal : undefined,
      prepare: async () => {
        const spec = completeRequest(id, await encode(), options, { ...this.#prepared.requestDefaults, cacheTokens });
        spec.ropeRow = this.#prepared.ropeRow(spec.prompt.length);
        if (spec.ropeRow > 0) spec.salt += `\u0000rope${spec.ropeRow}`;
        if (forkOf !== undefined) spec.forkOf = forkOf;
        return { spec, client: await this.#client, tokens: this.#prepared.tokens };
      },
    });
  }

  async stats(): Promise<SchedulerStats> {
    const stats = (await (await this.#client).call("stats")) as EngineStats;
    return {
      running: stats.numRunning,
      waiting: stats.numWaiting,
      steps: stats.numSteps,
      preemptions: stats.numPreemptions,
      swaps: stats.numSwaps,
      swappedBytes: stats.swappedBytes,
      promptTokens: stats.prompt,
      generatedTokens: stats.generated,
      hostMicrosPerStep: stats.hostMicrosPerStep,
      stepMs: stats.stepMs,
      cache: cacheUsage(stats),
    };
  }

  /** Calls `listener` with a request's id when it is admitted, finished or preempted. Returns a function that ends this. */
  on(event: SchedulerEventName, listener: Listener): () => void {
    checkChoice("event", event, ["admit", "finish", "preempt"]);
    this.#listeners[event].add(listener);
    this.#open?.wantEvents(true);
    return () => {
      this.#listeners[event].delete(listener);
      if (Object.values(this.#listeners).every((set) => set.size === 0)) this.#open?.wantEvents(false);
    };
  }

  /** Cancels all requests (IX_DISPOSED) and frees cache and activations; resolves within a step. */
  async dispose(): Promise<void> {
    this.#loading.abort();
    const client = await this.#client.catch(() => undefined);
    await client?.dispose();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose();
  }

  /** @internal */
  async engine(): Promise<EngineClient> {
    return this.#client;
  }
  /** @internal */
  get prepared(): PreparedModel {
    return this.#prepared;
  }

  #emit(event: SchedulerEventName, id: number): void {
    for (const listener of this.#listeners[event]) {
      try {
        listener(id);
      } catch (error) {
        queueMicrotask(() => {
          throw error; // the listener's own fault: it must not stop the engine's outputs
        });
      }
    }
  }
}

interface EngineStats {
  numRunning: number;
  numWaiting: number;
  numSteps: number;
  numPreemptions: number;
  numSwaps: number;
  swappedBytes: number;
  prompt: number;
  generated: number;
  cachedTokens: number;
  scheduledTokens: number;
  hostMicrosPerStep: number;
  stepMs: number;
  cache: { numBlocks: number; usedBlocks: number; cachedBlocks: number; pinnedBlocks: number; bytes: number }[];
}

/** Over all cache groups. */
function cacheUsage({ cache, cachedTokens, prompt }: EngineStats): CacheUsage {
  const sum = (key: "numBlocks" | "usedBlocks" | "cachedBlocks" | "bytes") =>
    cache.reduce((total, group) => total + group[key], 0);
  const [blocks, usedBlocks, cachedBlocks] = [sum("numBlocks"), sum("usedBlocks"), sum("cachedBlocks")];
  return {
    blocks,
    usedBlocks,
    cachedBlocks,
    freeBlocks: blocks - usedBlocks - cachedBlocks,
    bytes: sum("bytes"),
    prefixQueries: prompt,
    prefixHits: cachedTokens,
  };
}

/** @internal */
export async function usageOf(scheduler: Scheduler | undefined): Promise<CacheUsage> {
  if (!scheduler) throw new InferxError("IX_INVALID_ARGUMENT", "the cache belongs to no scheduler yet");
  return (await scheduler.stats()).cache;
}
