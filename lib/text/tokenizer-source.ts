// What the files beside the weights say about a tokenizer, brought into the shape that the native class takes:
// tokenizer_config.json, special_tokens_map.json, and the keys `tokenizer.ggml.*` of GGUF files.
import type { NativeTokenizerConfig, NativeVocab } from "../../types/native-text.d.ts";
import { InferxError } from "../base/errors.ts";

export type TokenizerFile =
  | {
      kind: "json";
      text: string | Uint8Array;
      config: Record<string, unknown>;
      specialTokensMap: Record<string, unknown>;
    }
  | { kind: "sentencepiece"; bytes: Uint8Array; config: Record<string, unknown> }
  | { kind: "gguf"; metadata: ReadonlyMap<string, unknown> };

/** Classes of transformers whose add_bos_token and add_eos_token replace the post-processor of tokenizer.json. */
const rulingClasses = new Set(["LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "CohereTokenizer"]);

export function jsonConfig(
  config: Record<string, unknown>,
  specialTokensMap: Record<string, unknown>,
): NativeTokenizerConfig {
  const out: NativeTokenizerConfig = {};
  const bosToken = tokenText(config.bos_token) ?? tokenText(specialTokensMap.bos_token);
  const eosToken = tokenText(config.eos_token) ?? tokenText(specialTokensMap.eos_token);
  if (bosToken !== undefined) out.bosToken = bosToken;
  if (eosToken !== undefined) out.eosToken = eosToken;
  const { tokenizer_class: className, add_bos_token: addBos, add_eos_token: addEos } = config;
  const rules = typeof className === "string" && rulingClasses.has(className.replace(/Fast$/, ""));
  if (rules && (typeof addBos === "boolean" || typeof addEos === "boolean")) {
    out.addBos = bosToken !== undefined && addBos !== false;
    out.addEos = eosToken !== undefined && addEos === true;
  }
  return out;
}

export function sentencePieceConfig(config: Record<string, unknown>): NativeTokenizerConfig {
  const out = jsonConfig(config, {});
  if (typeof config.add_bos_token === "boolean") out.addBos = config.add_bos_token;
  if (typeof config.add_eos_token === "boolean") out.addEos = config.add_eos_token;
  return out;
}

/** A token is a string, or an object of its flags with the string in `content`. */
function tokenText(value: unknown): string | undefined {
  if (typeof value === "object" && value !== null) return tokenText((value as { content?: unknown }).content);
  return typeof value === "string" ? value : undefined;
}

export function ggufVocab(metadata: ReadonlyMap<string, unknown>): NativeVocab {
  const key = (name: string): string => `tokenizer.ggml.${name}`;
  const get = (name: string): unknown => metadata.get(key(name));
  const refuse = (name: string, wanted: string): never => {
    throw new InferxError("IX_TOKENIZER", `${key(name)} is not ${wanted}`, { key: key(name) });
  };
  const strings = (name: string): string[] => {
    const value = get(name);
    const fits = Array.isArray(value) && value.every((item) => typeof item === "string");
    return fits ? value : refuse(name, "an array of strings");
  };
  const flag = (name: string): boolean | undefined => {
    const value = get(name);
    return value === undefined || typeof value === "boolean" ? value : refuse(name, "true or false");
  };
  const id = (name: string): number | undefined => {
    const value = get(name);
    if (value === undefined || value === 0xffffffff || value === -1) return undefined; // converters' words for "none"
    return typeof value === "number" && Number.isInteger(value) && value >= 0 ? value : refuse(name, "a token id");
  };

  const model = get("model");
  if (model !== "llama" && model !== "gpt2" && model !== "bert" && model !== "t5")
    return refuse("model", `a supported kind ("llama", "gpt2", "bert", "t5"): ${JSON.stringify(model)}`);
  const vocab: NativeVocab = { model, tokens: strings("tokens") };
  const put = <K extends keyof NativeVocab>(name: K, value: NativeVocab[K] | undefined): void => {
    if (value !== undefined) vocab[name] = value;
  };
  if (model === "gpt2") {
    vocab.merges = strings("merges");
    const pre = get("pre") ?? "default";
    vocab.pre = typeof pre === "string" ? pre : refuse("pre", "a string");
  } else if (model !== "bert") {
    const scores = get("scores");
    vocab.scores = scores instanceof Float32Array ? scores : refuse("scores", "an array of 32-bit floats");
  }
  const types = get("token_type");
  if (types !== undefined)
    vocab.types = types instanceof Int32Array ? types : refuse("token_type", "an array of integers");
  put("bos", model === "bert" ? (id("cls_token_id") ?? id("bos_token_id")) : id("bos_token_id"));
  put("eos", model === "bert" ? (id("seperator_token_id") ?? id("separator_token_id")) : id("eos_token_id"));
  put("unk", id("unknown_token_id") ?? unknownOf(vocab.types));
  put("addBos", flag("add_bos_token"));
  put("addEos", flag(model === "bert" ? "add_sep_token" : "add_eos_token"));
  put("addSpacePrefix", flag("add_space_prefix"));
  put("removeExtraWhitespaces", flag("remove_extra_whitespaces"));
  const charsmap = get("precompiled_charsmap");
  if (charsmap !== undefined) {
    if (!(charsmap instanceof Uint8Array || charsmap instanceof Int8Array)) refuse("precompiled_charsmap", "bytes");
    const { buffer, byteOffset, byteLength } = charsmap as Uint8Array;
    vocab.charsmap = new Uint8Array(buffer, byteOffset, byteLength);
  }
  return vocab;
}

const unknownType = 2;

function unknownOf(types: Int32Array | undefined): number | undefined {
  const id = types?.indexOf(unknownType) ?? -1;
  return id < 0 ? undefined : id;
}
