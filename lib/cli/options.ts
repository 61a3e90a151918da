// Flags that several commands share, and their way into ModelOptions and GenerateOptions.
// Only the form is checked here (a number is a number); ranges are the API's business.
import { type Command, InvalidArgumentError, Option } from "commander";
import { type GenerateOptions, Model, type ModelOptions } from "../index.ts";
import { LoadError } from "./exit-codes.ts";
import { progressBar } from "./terminal.ts";

export interface ModelFlags {
  model?: string;
  device?: "auto" | "cpu" | "cuda";
  threads?: number;
  context?: number;
  cacheBytes?: number;
  numerics?: "f32" | "fast";
}

export interface GenerateFlags {
  maxTokens?: number;
  temperature?: number;
  topK?: number;
  topP?: number;
  minP?: number;
  repetitionPenalty?: number;
  presencePenalty?: number;
  frequencyPenalty?: number;
  seed?: number | bigint;
  stop?: string[];
  ignoreEos?: boolean;
  logprobs?: number;
}

function parseNumber(text: string): number {
  const value = Number(text);
  if (text.trim() === "" || Number.isNaN(value)) throw new InvalidArgumentError("It is not a number.");
  return value;
}

function parseSeed(text: string): number | bigint {
  if (!/^\d+$/.test(text)) throw new InvalidArgumentError("It is not a whole number.");
  const value = BigInt(text);
  return value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : value;
}

function parseBytes(text: string): number {
  const match = /^(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?$/i.exec(text);
  if (!match) throw new InvalidArgumentError("It is not a size such as 512M or 2G.");
  return Math.floor(Number(match[1]) * 1024 ** " kmgt".indexOf(match[2]!.toLowerCase() || " "));
}

export function addModelOptions(command: Command): Command {
  return command
    .option("-m, --model <path>", "folder with config.json, or .gguf file (default: the bundled model)")
    .addOption(new Option("--device <kind>", "where to run").choices(["auto", "cpu", "cuda"]))
    .option("--threads <n>", "CPU threads", parseNumber)
    .option("--context <tokens>", "most tokens of prompt and answer together", parseNumber)
    .option("--cache-bytes <size>", "memory for the KV cache, such as 512M", parseBytes)
    .addOption(new Option("--numerics <kind>", "arithmetic").choices(["f32", "fast"]));
}

export function addGenerateOptions(command: Command): Command {
  return command
    .option("-n, --max-tokens <n>", "most new tokens", parseNumber)
    .option("-t, --temperature <x>", "0 = greedy", parseNumber)
    .option("--top-k <n>", "0 = off", parseNumber)
    .option("--top-p <x>", "1 = off", parseNumber)
    .option("--min-p <x>", "0 = off", parseNumber)
    .option("--repetition-penalty <x>", "1 = off", parseNumber)
    .option("--presence-penalty <x>", "0 = off", parseNumber)
    .option("--frequency-penalty <x>", "0 = off", parseNumber)
    .option("--seed <n>", "same seed, same text", parseSeed)
    .option("--stop <text...>", "stop strings")
    .option("--ignore-eos", "go on past the model's end tokens");
}

/** The object without its undefined members: exactOptionalPropertyTypes tells them from missing ones. */
function defined<T extends object>(value: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  const present = Object.entries(value).filter(([, member]) => member !== undefined);
  return Object.fromEntries(present) as { [K in keyof T]?: Exclude<T[K], undefined> };
}

export function modelOptions(flags: ModelFlags): ModelOptions {
  return defined({
    device: flags.device,
    threads: flags.threads,
    contextLength: flags.context,
    cache: flags.cacheBytes === undefined ? undefined : { bytes: flags.cacheBytes },
    numerics: flags.numerics,
  });
}

export function generateOptions(flags: GenerateFlags): GenerateOptions {
  return defined({
    maxTokens: flags.maxTokens,
    temperature: flags.temperature,
    topK: flags.topK,
    topP: flags.topP,
    minP: flags.minP,
    repetitionPenalty: flags.repetitionPenalty,
    presencePenalty: flags.presencePenalty,
    frequencyPenalty: flags.frequencyPenalty,
    seed: flags.seed,
    stop: flags.stop,
    ignoreEos: flags.ignoreEos,
    logprobs: flags.logprobs,
  });
}

/** Loads with a progress bar; whatever goes wrong becomes a LoadError. */
export async function loadModel(flags: ModelFlags, options: ModelOptions = {}): Promise<Model> {
  const bar = progressBar();
  try {
    return await Model.load(flags.model, { ...modelOptions(flags), ...options, onProgress: bar.update });
  } catch (error) {
    throw new LoadError(error);
  } finally {
    bar.clear();
  }
}
