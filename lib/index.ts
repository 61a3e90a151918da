// The public API of inferx.
export { Generation } from "./api/generation.ts";
export { KVCache, type PinnedPrefix } from "./api/kv-cache.ts";
export { Model } from "./api/model.ts";
export { Scheduler, type SchedulerOptions, type SchedulerRequest } from "./api/scheduler.ts";
export type {
  CacheOptions,
  CacheUsage,
  ChatMessage,
  ChatOptions,
  GeneratedToken,
  GenerateOptions,
  GenerationChunk,
  GenerationResult,
  LoadProgress,
  ModelInfo,
  ModelOptions,
  ModelPlan,
  PromptLogprob,
  RandomModel,
  SamplingOptions,
  SchedulerStats,
  Timings,
  TokenLogprob,
  Usage,
} from "./api/types.ts";
export { type ErrorCode, InferxError } from "./base/errors.ts";
export { type Architecture, architecture } from "./models/architecture.ts";
