// The public KVCache: how large the paged cache of a scheduler is, and what may be done with what it holds.
import { InferxError } from "../base/errors.ts";
import { checkBoolean, checkChoice, checkInt, checkKeys, checkNumber } from "../base/options.ts";
import type { Generation } from "./generation.ts";
import { checkGenerateOptions } from "./request.ts";
import { type Scheduler, usageOf } from "./scheduler.ts";
import type { CacheOptions, CacheUsage, GenerateOptions } from "./types.ts";

/** A prefix that stays in the cache until it is released. */
export interface PinnedPrefix {
  /** Tokens kept: whole blocks only. */
  readonly tokens: number;
  release(): Promise<void>;
}

/** A paged KV cache; memory is taken when a scheduler is made with it, which it then belongs to. */
export class KVCache {
  readonly options: Readonly<CacheOptions>;
  #scheduler: Scheduler | undefined;

  /** @throws IX_INVALID_ARGUMENT */
  constructor(options: CacheOptions = {}) {
    checkKeys("KVCache", options, ["bytes", "share", "blocks", "swapBytes", "dtype", "prefixCache"]);
    const sizes = [options.bytes, options.share, options.blocks].filter((size) => size !== undefined);
    if (sizes.length > 1)
      throw new InferxError("IX_INVALID_ARGUMENT", "give one of cache bytes, share and blocks, not several", {
        option: "cache",
      });
    if (options.bytes !== undefined) checkInt("cache.bytes", options.bytes, 1);
    if (options.blocks !== undefined) checkInt("cache.blocks", options.blocks, 1, 1 << 24);
    if (options.share !== undefined) checkNumber("cache.share", options.share, 1e-6, 0.95);
    if (options.swapBytes !== undefined) checkInt("cache.swapBytes", options.swapBytes, 0);
    if (options.dtype !== undefined) checkChoice("cache.dtype", options.dtype, ["auto", "f32", "bf16"]);
    if (options.prefixCache !== undefined) checkBoolean("cache.prefixCache", options.prefixCache);
    this.options = { ...options };
  }

  /** @internal */
  attach(scheduler: Scheduler): void {
    if (this.#scheduler)
      throw new InferxError("IX_INVALID_ARGUMENT", "the cache belongs to another scheduler already", {
        option: "cache",
      });
    this.#scheduler = scheduler;
  }

  /** Blocks in use, kept for reuse and free. */
  usage(): Promise<CacheUsage> {
    return usageOf(this.#scheduler);
  }

  /**
   * Another continuation of a generation from where it is now: prompt and answer so far become the prompt of a new one, whose cache
   * blocks are shared until either side writes into them.
   */
  fork(generation: Generation, options: GenerateOptions = {}): Generation {
    const scheduler = this.#attached();
    const { state } = generation;
    return scheduler.generation(
      options,
      () => {
        checkGenerateOptions(options, "generate");
        if (!state)
          throw new InferxError(
            "IX_INVALID_ARGUMENT",
            "the generation has not started yet: await its first chunk before forking it",
          );
        return Int32Array.from([...state.spec.prompt, ...state.tokens.map(({ id }) => id)]);
      },
      state?.spec.id,
    );
  }

  /**
   * Computes a prompt's prefix, unless it is cached, and keeps its whole blocks until `release`.
   * @throws IX_KV_EXHAUSTED when it would leave too little room for the requests that run
   */
  async pin(
    prompt: string | readonly number[],
    options: Pick<GenerateOptions, "addSpecial" | "parseSpecial" | "tenant"> = {},
  ): Promise<PinnedPrefix> {
    const scheduler = this.#attached();
    checkKeys("pin", options, ["addSpecial", "parseSpecial", "tenant"]);
    checkGenerateOptions(options, "generate");
    const tokens = await scheduler.prepared.text.encode(prompt, options);
    await scheduler.generation({ ...options, maxTokens: 0 }, () => tokens);
    const client = await scheduler.engine();
    const before = (await client.call("match", { tokens, salt: options.tenant ?? "" })) as number;
    const pin = (await client.call("pin", { tokens, salt: options.tenant ?? "" })) as number;
    return {
      tokens: before,
      release: async () => {
        await client.call("unpin", { pin });
      },
    };
  }

  /** Forgets all cached prefixes and pins; running requests keep their blocks. */
  async clear(): Promise<void> {
    await (await this.#attached().engine()).call("clear");
  }

  #attached(): Scheduler {
    if (!this.#scheduler)
      throw new InferxError(
        "IX_INVALID_ARGUMENT",
        "the cache belongs to no scheduler yet: make one with `new Scheduler(model, { cache })`",
      );
    return this.#scheduler;
  }
}
