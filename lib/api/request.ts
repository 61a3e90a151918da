// From the caller's options to a complete request: every number checked, every default filled in.
import { randomBytes } from "node:crypto";
import { InferxError } from "../base/errors.ts";
import {
  checkArray,
  checkBoolean,
  checkInt,
  checkKeys,
  checkNumber,
  checkObject,
  checkSignal,
  checkString,
} from "../base/options.ts";
import { maxTopLogprobs, type RequestSpec, type Sampling } from "../engine/protocol.ts";
import type { ChatOptions, GenerateOptions, SamplingOptions } from "./types.ts";

const samplingKeys = [
  "temperature",
  "topK",
  "topP",
  "minP",
  "repetitionPenalty",
  "presencePenalty",
  "frequencyPenalty",
  "logitBias",
  "seed",
] as const satisfies (keyof SamplingOptions)[];
const generateKeys = [
  ...samplingKeys,
  "maxTokens",
  "stop",
  "stopTokens",
  "ignoreEos",
  "logprobs",
  "promptLogprobs",
  "priority",
  "tenant",
  "deadlineMs",
  "keepSpecial",
  "parseSpecial",
  "addSpecial",
  "signal",
] as const satisfies (keyof GenerateOptions)[];
const chatKeys = [
  ...generateKeys,
  "tools",
  "addGenerationPrompt",
  "continueFinalMessage",
  "templateVariables",
] as const satisfies (keyof ChatOptions)[];

/** What the model fixes of a request. */
export interface RequestDefaults {
  contextLength: number;
  /** Tokens that the cache holds in all: what an answer without `maxTokens` may grow to. */
  cacheTokens: number;
  vocabularySize: number;
  eosTokenIds: readonly number[];
  hasTokenizer: boolean;
  sampling: SamplingOptions;
}

/** Options that are not numbers; those are checked where their bounds are known. */
const typeChecks: Record<string, (name: string, value: unknown) => void> = {
  signal: checkSignal,
  logitBias: checkObject,
  templateVariables: checkObject,
  stopTokens: checkArray,
  tools: checkArray,
  stop: (name, value) => (typeof value === "string" ? value : checkArray(name, value)),
  keepSpecial: checkBoolean,
  parseSpecial: checkBoolean,
  addSpecial: checkBoolean,
  ignoreEos: checkBoolean,
  addGenerationPrompt: checkBoolean,
  continueFinalMessage: checkBoolean,
};

/** @throws IX_INVALID_ARGUMENT naming the option. */
export function checkGenerateOptions(options: GenerateOptions | ChatOptions, kind: "generate" | "chat"): void {
  checkKeys(kind, options, kind === "chat" ? chatKeys : generateKeys);
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  for (const [name, value] of given) typeChecks[name]?.(name, value);
}

function seedWords(seed: number | bigint | undefined): [number, number] {
  if (seed === undefined) {
    const bytes = randomBytes(8);
    return [bytes.readInt32LE(0), bytes.readInt32LE(4)];
  }
  if (typeof seed !== "bigint") checkInt("seed", seed, Number.MIN_SAFE_INTEGER);
  const wide = BigInt.asUintN(64, BigInt(seed));
  return [Number(BigInt.asIntN(32, wide)), Number(BigInt.asIntN(32, wide >> 32n))];
}

/** Sampling parameters in the engine's form; what the caller leaves out comes from the model's defaults. */
export function completeSampling(options: SamplingOptions, defaults: RequestDefaults): Sampling {
  const given = <K extends keyof SamplingOptions>(name: K) => options[name] ?? defaults.sampling[name];
  const number = (
    name: "temperature" | "topP" | "minP" | "repetitionPenalty" | "presencePenalty" | "frequencyPenalty",
    otherwise: number,
    min: number,
    max: number,
  ) => checkNumber(name, given(name) ?? otherwise, min, max);
  const bias = Object.entries(options.logitBias ?? {}).map(([key, value]): [number, number] => {
    const token = checkInt("logitBias token", Number(key), 0, defaults.vocabularySize - 1);
    if (value !== Number.NEGATIVE_INFINITY) checkNumber(`logitBias[${key}]`, value, -maxAddend, maxAddend);
    return [token, value];
  });
  if (bias.length > maxBias)
    throw new InferxError(
      "IX_INVALID_ARGUMENT",
      `logitBias has ${bias.length} entries, at most ${maxBias} are possible`,
      { option: "logitBias" },
    );
  const temperature = number("temperature", 0, 0, 1e6);
  return {
    temperature: temperature < leastTemperature ? 0 : temperature,
    topK: Math.min(checkInt("topK", given("topK") ?? 0, 0), defaults.vocabularySize),
    topP: number("topP", 1, 0, 1),
    minP: number("minP", 0, 0, 1),
    repetition: number("repetitionPenalty", 1, 1e-6, 1e6),
    presence: number("presencePenalty", 0, -maxAddend, maxAddend),
    frequency: number("frequencyPenalty", 0, -maxAddend, maxAddend),
    seed: seedWords(options.seed),
    bias,
  };
}

/** Entries of one request's logit bias; a step has room for this many per sequence. */
export const maxBias = 1024;
/** Far beyond any logit, and still finite in f32 after penalties and temperature. */
const maxAddend = 1e6;
/** Below it the draw's noise is lost in the rounding of the scaled logits, and they may overflow: that is greedy. */
const leastTemperature = 1e-6;

/**
 * @throws IX_INVALID_ARGUMENT (empty prompt, unknown token, bad option), IX_TOKENIZER (stop strings without one), IX_CONTEXT_OVERFLOW (the prompt leaves no room, or prompt and
 * maxTokens together exceed the context)
 */
export function completeRequest(
  id: number,
  prompt: Int32Array,
  options: GenerateOptions,
  defaults: RequestDefaults,
): RequestSpec {
  if (prompt.length === 0)
    throw new InferxError("IX_INVALID_ARGUMENT", "the prompt is empty: it needs at least one token", {
      option: "prompt",
    });
  for (const token of prompt) {
    if (token < 0 || token >= defaults.vocabularySize) {
      throw new InferxError(
        "IX_INVALID_ARGUMENT",
        `prompt token ${token} is outside of the vocabulary of ${defaults.vocabularySize}`,
        { option: "prompt" },
      );
    }
  }
  const { contextLength } = defaults;
  const left = Math.min(contextLength - prompt.length, defaults.cacheTokens - prompt.length + 1);
  const maxTokens = checkInt("maxTokens", options.maxTokens ?? Math.max(1, left), 0);
  const minimum = maxTokens === 0 ? 0 : Math.max(1, options.maxTokens ?? 1);
  if (prompt.length + minimum > contextLength) {
    throw new InferxError(
      "IX_CONTEXT_OVERFLOW",
      `a prompt of ${prompt.length} tokens and ${minimum} new ones exceed the context of ${contextLength}`,
      { promptTokens: prompt.length, maxTokens: minimum, contextLength },
    );
  }
  const stop = options.stop === undefined ? [] : typeof options.stop === "string" ? [options.stop] : [...options.stop];
  for (const text of stop) {
    if (!defaults.hasTokenizer)
      throw new InferxError("IX_TOKENIZER", "stop strings need a tokenizer, which the model lacks: use stopTokens");
    if (checkString("stop", text) === "")
      throw new InferxError("IX_INVALID_ARGUMENT", "a stop string must not be empty", { option: "stop" });
  }
  const own = options.ignoreEos ? [] : defaults.eosTokenIds;
  const others = (options.stopTokens ?? []).map((token) =>
    checkInt("stopTokens", token, 0, defaults.vocabularySize - 1),
  );
  return {
    id,
    prompt,
    maxTokens,
    sampling: completeSampling(options, defaults),
    stop,
    stopTokens: Int32Array.from([...own, ...others]),
    numOwnStopTokens: own.length,
    keepSpecial: options.keepSpecial ?? false,
    logprobs: options.logprobs === undefined ? -1 : checkInt("logprobs", options.logprobs, 0, maxTopLogprobs),
    promptLogprobs:
      options.promptLogprobs === undefined ? -1 : checkInt("promptLogprobs", options.promptLogprobs, 0, maxTopLogprobs),
    priority: -checkNumber("priority", options.priority ?? 0),
    tenant: checkString("tenant", options.tenant ?? ""),
    deadlineMs:
      options.deadlineMs === undefined
        ? Number.POSITIVE_INFINITY
        : performance.timeOrigin + performance.now() + checkNumber("deadlineMs", options.deadlineMs, 0),
    salt: options.tenant ?? "",
    ropeRow: 0,
  };
}
