// A GGUF file as a checkpoint: names and shapes as Hugging Face has them, tokens with a role, template, end tokens.
import { InferxError } from "../base/errors.ts";
import { BoundedReader } from "./bounded-reader.ts";
import type { Checkpoint, SpecialTokens, TensorInfo } from "./checkpoint.ts";
import { dequantize } from "./dequantize.ts";
import { type GgufFile, type GgufTensor, readGguf } from "./gguf.ts";
import { ggufConfig } from "./gguf-config.ts";
import type { GgufValue } from "./gguf-cursor.ts";
import { type GgufNaming, ggufNamings, hfTensorName, ropeFactorTensors } from "./gguf-names.ts";
import { architectureOf, type HfConfig } from "./hf-config.ts";

/** Texts of control tokens that end an answer, for files that name only one of several. */
const endTexts = new Set([
  "<|eot_id|>",
  "<|im_end|>",
  "<|end|>",
  "<end_of_turn>",
  "<|endoftext|>",
  "<|end_of_text|>",
  "<EOT>",
]);
const controlType = 3;
/** A rope factor per pair of columns of a head. */
const maxFactorBytes = 1 << 16;

/** Opens a GGUF file (or all parts of a split one). Errors: see `openCheckpoint`. */
export function openGgufCheckpoint(path: string): Checkpoint {
  const gguf = readGguf(path);
  const { metadata, files } = gguf;
  const config = ggufConfig(gguf, (name) => readFactors(gguf, name));
  const architecture = architectureOf(config);
  const chatTemplates = readTemplates(metadata);
  const eosTokenIds = endTokens(metadata);
  return {
    kind: "gguf",
    config,
    architecture,
    generationConfig: { eos_token_id: eosTokenIds },
    tensors: renameTensors(gguf, ggufNamings[architecture]!, config),
    files,
    tokenizer: metadata.has("tokenizer.ggml.tokens") ? { kind: "gguf", metadata } : undefined,
    chatTemplate: chatTemplates.default,
    chatTemplates,
    specialTokens: specialTokens(metadata),
    eosTokenIds,
  };
}

function readFactors(gguf: GgufFile, name: string): number[] {
  const tensor = gguf.tensors.get(name);
  if (tensor?.dtype !== "f32" || tensor.dims.length !== 1 || tensor.byteLength > maxFactorBytes) {
    throw new InferxError(
      "IX_MODEL_FORMAT",
      `tensor ${name} must be a short list of f32 (byte ${tensor?.byteOffset ?? 0})`,
      {
        tensor: name,
        offset: tensor?.byteOffset ?? 0,
      },
    );
  }
  const reader = new BoundedReader(gguf.files[tensor.file]!.path);
  try {
    return [...dequantize("f32", reader.readAt(tensor.byteOffset, tensor.byteLength))];
  } finally {
    reader.close();
  }
}

/** Tensors under their Hugging Face names; those that the architecture does not know keep the name they have. */
function renameTensors(gguf: GgufFile, naming: GgufNaming, config: HfConfig): Map<string, TensorInfo> {
  const tensors = new Map<string, TensorInfo>();
  const add = (tensor: TensorInfo) => tensors.set(tensor.name, tensor);
  for (const tensor of gguf.tensors.values()) {
    if (ropeFactorTensors.includes(tensor.name)) continue;
    const name = hfTensorName(naming, tensor.name) ?? tensor.name;
    const { dtype, file, byteOffset, byteLength } = tensor;
    const info: TensorInfo = { name, dtype, shape: tensor.dims.toReversed(), file, byteOffset, byteLength };
    if (name.includes("{e}")) {
      for (const expert of splitExperts(tensor, info)) add(expert);
      continue;
    }
    const heads = naming.permutedRope && headsOf(tensor.name, config);
    if (heads) {
      if (!Number.isInteger(info.shape[0]! / (2 * heads))) {
        const message = `${info.shape[0]} rows of ${tensor.name} are not ${heads} heads of an even width`;
        throw new InferxError("IX_MODEL_CONFIG", message, { key: "attention.head_count", tensor: tensor.name });
      }
      info.rowPermutation = { kind: "llama-rope", heads };
    }
    if (naming.normsPlusOne && name.endsWith("norm.weight")) info.offsetOne = true;
    add(info);
  }
  return tensors;
}

function headsOf(name: string, config: HfConfig): number | undefined {
  if (/\.attn_q\.(weight|bias)$/.test(name)) return config.num_attention_heads as number;
  if (/\.attn_k\.(weight|bias)$/.test(name)) return config.num_key_value_heads as number;
  return undefined;
}

/** `[E, out, in]` is E matrices one after the other. */
function splitExperts(tensor: GgufTensor, stacked: TensorInfo): TensorInfo[] {
  const [numExperts, ...shape] = stacked.shape;
  if (tensor.dims.length !== 3 || numExperts === undefined) {
    const { name, byteOffset: offset } = tensor;
    throw new InferxError("IX_MODEL_FORMAT", `tensor ${name} must have three dimensions (byte ${offset})`, {
      name,
      offset,
    });
  }
  const byteLength = stacked.byteLength / numExperts;
  return Array.from({ length: numExperts }, (_, expert) => ({
    ...stacked,
    name: stacked.name.replace("{e}", String(expert)),
    shape,
    byteOffset: stacked.byteOffset + expert * byteLength,
    byteLength,
  }));
}

function readTemplates(metadata: ReadonlyMap<string, GgufValue>): Record<string, string> {
  const templates: Record<string, string> = {};
  for (const [key, value] of metadata) {
    const match = /^tokenizer\.chat_template(?:\.(.+))?$/.exec(key);
    if (match && typeof value === "string") templates[match[1] ?? "default"] = value;
  }
  return templates;
}

function tokenId(metadata: ReadonlyMap<string, GgufValue>, role: string): number | undefined {
  const id = metadata.get(`tokenizer.ggml.${role}_token_id`);
  // Converters write -1 (as 2^32 - 1) for "none".
  return typeof id === "number" && id >= 0 && id < 0xffffffff ? id : undefined;
}

function specialTokens(metadata: ReadonlyMap<string, GgufValue>): SpecialTokens {
  const tokens = metadata.get("tokenizer.ggml.tokens");
  const roles = { bosToken: "bos", eosToken: "eos", unkToken: "unknown", padToken: "padding" };
  const texts: SpecialTokens = {};
  for (const [name, role] of Object.entries(roles)) {
    const id = tokenId(metadata, role);
    const text = Array.isArray(tokens) && id !== undefined ? tokens[id] : undefined;
    if (typeof text === "string") texts[name] = text;
  }
  return texts;
}

function endTokens(metadata: ReadonlyMap<string, GgufValue>): number[] {
  const ids = new Set(["eos", "eot", "eom"].flatMap((role) => tokenId(metadata, role) ?? []));
  const tokens = metadata.get("tokenizer.ggml.tokens");
  const types = metadata.get("tokenizer.ggml.token_type");
  if (Array.isArray(tokens) && types instanceof Int32Array) {
    types.forEach((type, id) => {
      if (type === controlType && endTexts.has(tokens[id] as string)) ids.add(id);
    });
  }
  return [...ids];
}
