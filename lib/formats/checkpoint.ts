// Opens a model, a Hugging Face folder or a GGUF file, and describes it in one way: config, tensors under their
// Hugging Face names, tokenizer, chat template. Reads headers and small files only; weights stay on disk.
import { existsSync } from "node:fs";
import { extname, join } from "node:path";
import { InferxError } from "../base/errors.ts";
import { type FileRef, statPath } from "./bounded-reader.ts";
import type { DType } from "./dtypes.ts";
import { openGgufCheckpoint } from "./gguf-checkpoint.ts";
import type { GgufValue } from "./gguf-cursor.ts";
import { architectureOf, type HfConfig, normaliseHfConfig } from "./hf-config.ts";
import { readSafetensorsFolder } from "./safetensors.ts";
import { isRecord, listFolder, readJsonFile, readSmallFile, readTextFile } from "./small-files.ts";

export interface TensorInfo {
  /** Hugging Face's name, also for GGUF files. */
  name: string;
  dtype: DType;
  /** Outermost first, `[out, in]` for matrices. */
  shape: number[];
  /** Index in `Checkpoint.files`. */
  file: number;
  /** From the start of the file. */
  byteOffset: number;
  byteLength: number;
  /**
   * Rows are interleaved within each of `heads` heads of D rows (llama.cpp's rope layout):
   * stored row `2j + h` of a head is row `h * D/2 + j` of the model, h in {0, 1}.
   */
  rowPermutation?: { kind: "llama-rope"; heads: number };
  /** The stored values are `1 + w`: the converter has already added the one of gemma's norms. */
  offsetOne?: true;
  /** A matrix that is stored `[in, out]` (GPT-2's Conv1D in Hugging Face files); `shape` is as stored. */
  transposed?: true;
}

export type TokenizerSource =
  | { kind: "json"; text: string; config: Record<string, unknown>; specialTokensMap: Record<string, unknown> }
  | { kind: "sentencepiece"; bytes: Uint8Array; config: Record<string, unknown> }
  | { kind: "gguf"; metadata: ReadonlyMap<string, GgufValue> };

/** Texts of the tokens with a role, as chat templates want them; further `x_token` keys become `xToken`. */
export interface SpecialTokens {
  bosToken?: string;
  eosToken?: string;
  unkToken?: string;
  padToken?: string;
  [name: string]: string | undefined;
}

export interface Checkpoint {
  kind: "hf" | "gguf";
  /** Normalised (see hf-config.ts): 4.x keys whatever the file's layout. */
  config: HfConfig;
  /** Hugging Face's class name, "LlamaForCausalLM". */
  architecture: string;
  generationConfig: Record<string, unknown>;
  tensors: Map<string, TensorInfo>;
  /** Empty where `seed` is set. */
  files: FileRef[];
  /** The tensors lie in no file: their values are made from this number (random-values.ts). */
  seed?: number;
  /** Undefined when the folder has none: the model then takes token ids only. */
  tokenizer: TokenizerSource | undefined;
  /** The template named "default", or the only one. */
  chatTemplate: string | undefined;
  /** All templates by name ("default", "tool_use", "rag"). */
  chatTemplates: Record<string, string>;
  specialTokens: SpecialTokens;
  /** Tokens that end an answer, without doubles. */
  eosTokenIds: number[];
}

/** tokenizer.json of the largest vocabularies has 35 MB. */
const maxTokenizerBytes = 256 << 20;
const maxConfigBytes = 64 << 20;

/**
 * Opens the model at `path`: a folder with config.json, or a `.gguf` file (any part of a split one).
 * Errors: IX_FILE_NOT_FOUND, IX_FILE_READ, IX_MODEL_FORMAT (damaged or unknown file), IX_MODEL_CONFIG,
 * IX_UNSUPPORTED_ARCHITECTURE (GGUF).
 */
export function openCheckpoint(path: string): Checkpoint {
  if (statPath(path).isDirectory()) return openFolder(path);
  if (extname(path).toLowerCase() === ".gguf") return openGgufCheckpoint(path);
  throw new InferxError("IX_MODEL_FORMAT", `${path} is neither a folder nor a .gguf file`, { path });
}

function openFolder(folder: string): Checkpoint {
  if (!existsSync(join(folder, "config.json"))) {
    const found = listFolder(folder);
    const gguf = found.filter((name) => name.endsWith(".gguf"));
    const hint = gguf.length > 0 ? `; pass the path of a GGUF file: ${gguf.slice(0, 5).join(", ")}` : "";
    const shown = found.slice(0, 20).join(", ") || "nothing";
    throw new InferxError("IX_MODEL_CONFIG", `no config.json in ${folder} (there is ${shown})${hint}`, {
      path: folder,
      found,
    });
  }
  const optionalJson = (name: string) => {
    const path = join(folder, name);
    return existsSync(path) ? readJsonFile(path, maxConfigBytes) : {};
  };
  const raw = readJsonFile(join(folder, "config.json"), maxConfigBytes);
  const { tensors, files } = readSafetensorsFolder(folder);
  const generationConfig = optionalJson("generation_config.json");
  const tokenizerConfig = optionalJson("tokenizer_config.json");
  const specialTokensMap = optionalJson("special_tokens_map.json");
  const chatTemplates = readChatTemplates(folder, tokenizerConfig);
  const bare = checkpointOfConfig(raw);
  const checkpoint: Checkpoint = {
    ...bare,
    generationConfig,
    files,
    tokenizer: readTokenizer(folder, tokenizerConfig, specialTokensMap),
    chatTemplate: chatTemplates.default,
    chatTemplates,
    specialTokens: { ...specialTexts(specialTokensMap), ...specialTexts(tokenizerConfig) },
    eosTokenIds: tokenIds(generationConfig.eos_token_id ?? bare.config.eos_token_id),
  };
  for (const tensor of tensors.values()) {
    const info: TensorInfo = { ...tensor, name: plainName(tensor.name, checkpoint.architecture) };
    if (checkpoint.architecture === "GPT2LMHeadModel" && /\.c_(attn|proj|fc)\.weight$/.test(info.name))
      info.transposed = true;
    checkpoint.tensors.set(info.name, info);
  }
  return checkpoint;
}

/** What a config.json says by itself: a checkpoint with no tensors and no text. Errors: IX_MODEL_CONFIG. */
export function checkpointOfConfig(raw: HfConfig): Checkpoint {
  const config = normaliseHfConfig(raw);
  const architecture = architectureOf(raw);
  return {
    kind: "hf",
    config,
    // Published gemma 3 checkpoints wrap the text model in one for images; its text part is the class named here.
    architecture: architecture === "Gemma3ForConditionalGeneration" ? "Gemma3ForCausalLM" : architecture,
    generationConfig: {},
    tensors: new Map(),
    files: [],
    tokenizer: undefined,
    chatTemplate: undefined,
    chatTemplates: {},
    specialTokens: {},
    eosTokenIds: tokenIds(config.eos_token_id),
  };
}

/** The name under which the class of today saves the tensor. */
function plainName(name: string, architecture: string): string {
  if (architecture === "Gemma3ForCausalLM") {
    return name.replace(/^(model\.)?language_model\.(model\.)?/, (_, outer, inner) => (outer || inner ? "model." : ""));
  }
  // The first GPT-2 checkpoints were saved without the prefix.
  if (architecture === "GPT2LMHeadModel") return name.replace(/^(?=(h\.|wte\.|wpe\.|ln_f\.))/, "transformer.");
  return name;
}

function readTokenizer(
  folder: string,
  config: Record<string, unknown>,
  specialTokensMap: Record<string, unknown>,
): TokenizerSource | undefined {
  const json = join(folder, "tokenizer.json");
  if (existsSync(json)) return { kind: "json", text: readTextFile(json, maxTokenizerBytes), config, specialTokensMap };
  const sentencepiece = join(folder, "tokenizer.model");
  if (existsSync(sentencepiece)) {
    return { kind: "sentencepiece", bytes: readSmallFile(sentencepiece, maxTokenizerBytes), config };
  }
  return undefined;
}

/** A file of its own wins over tokenizer_config.json, as in transformers. */
function readChatTemplates(folder: string, tokenizerConfig: Record<string, unknown>): Record<string, string> {
  const templates: Record<string, string> = namedTemplates(tokenizerConfig.chat_template);
  const json = join(folder, "chat_template.json");
  if (existsSync(json)) Object.assign(templates, namedTemplates(readJsonFile(json, maxConfigBytes).chat_template));
  const jinja = join(folder, "chat_template.jinja");
  if (existsSync(jinja)) templates.default = readTextFile(jinja, maxConfigBytes);
  const more = join(folder, "additional_chat_templates");
  for (const name of existsSync(more) ? listFolder(more) : []) {
    if (name.endsWith(".jinja"))
      templates[name.slice(0, -".jinja".length)] = readTextFile(join(more, name), maxConfigBytes);
  }
  return templates;
}

function namedTemplates(value: unknown): Record<string, string> {
  if (typeof value === "string") return { default: value };
  const templates: Record<string, string> = {};
  for (const item of Array.isArray(value) ? value : []) {
    if (isRecord(item) && typeof item.name === "string" && typeof item.template === "string")
      templates[item.name] = item.template;
  }
  return templates;
}

/** `bos_token: "<s>"` or `bos_token: {content: "<s>"}` -> `bosToken: "<s>"`. */
function specialTexts(source: Record<string, unknown>): SpecialTokens {
  const texts: SpecialTokens = {};
  for (const [key, value] of Object.entries(source)) {
    if (!key.endsWith("_token")) continue;
    const text = isRecord(value) ? value.content : value;
    const name = key.replace(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
    if (typeof text === "string") texts[name] = text;
  }
  return texts;
}

function tokenIds(value: unknown): number[] {
  const list = Array.isArray(value) ? value : [value];
  return [...new Set(list.filter((id): id is number => Number.isSafeInteger(id) && id >= 0))];
}
