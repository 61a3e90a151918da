// Writes a Llama-shaped GGUF file with random weights, to measure speed on shapes and formats without a download.
// The same arguments give the same bytes.
//
//   node bench/models/make-gguf.mjs --shape 0.6B --format Q4_K_M [--out <file>]
import { createCipheriv } from "node:crypto";
import { closeSync, mkdirSync, openSync, renameSync, writeSync } from "node:fs";
import { dirname } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { formats, shapes, tensorsOf, types } from "./shapes.mjs";

const f32Id = 0;

/** A byte-level BPE vocabulary: the 256 bytes, then each earlier token followed by each byte; the last one ends a text. */
function vocabularyOf(numTokens) {
  const printable = (byte) => (byte > 32 && byte < 127) || (byte > 160 && byte !== 173 && byte < 256);
  let unprintable = 256;
  const tokens = Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(printable(byte) ? byte : unprintable++));
  const merges = [];
  for (let i = 0; tokens.length < numTokens - 1; i++) {
    const pair = [tokens[i >> 8], tokens[i & 255]];
    merges.push(pair.join(" "));
    tokens.push(pair.join(""));
  }
  tokens.push("<|endoftext|>");
  const kinds = tokens.map((_, id) => (id === numTokens - 1 ? 3 : 1));
  return { tokens, merges, kinds };
}

function u32(value) {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function u64(value) {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}

function text(value) {
  const bytes = Buffer.from(value);
  return Buffer.concat([u64(bytes.length), bytes]);
}

function f32(value) {
  const bytes = Buffer.alloc(4);
  bytes.writeFloatLE(value);
  return bytes;
}

/** Metadata value types: id in the file and how one is written. */
const kinds = { u32: [4, u32], i32: [5, u32], f32: [6, f32], text: [8, text] };

function list(kind, values) {
  const [id, write] = kinds[kind];
  return Buffer.concat([u32(9), u32(id), u64(values.length), ...values.map(write)]);
}

function single(kind, value) {
  const [id, write] = kinds[kind];
  return Buffer.concat([u32(id), write(value)]);
}

function metadataOf(shapeName, formatName) {
  const shape = shapes[shapeName];
  const words = vocabularyOf(shape.vocabulary);
  return Object.entries({
    "general.architecture": single("text", "llama"),
    "general.name": single("text", `random ${shapeName}`),
    "general.file_type": single("u32", formats[formatName].fileType),
    "general.quantization_version": single("u32", 2),
    "llama.context_length": single("u32", 8192),
    "llama.embedding_length": single("u32", shape.hidden),
    "llama.block_count": single("u32", shape.layers),
    "llama.feed_forward_length": single("u32", shape.ffn),
    "llama.attention.head_count": single("u32", shape.heads),
    "llama.attention.head_count_kv": single("u32", shape.kvHeads),
    "llama.attention.key_length": single("u32", shape.headDim),
    "llama.attention.value_length": single("u32", shape.headDim),
    "llama.attention.layer_norm_rms_epsilon": single("f32", 1e-5),
    "llama.rope.dimension_count": single("u32", shape.headDim),
    "llama.rope.freq_base": single("f32", 500_000),
    "llama.vocab_size": single("u32", shape.vocabulary),
    "tokenizer.ggml.model": single("text", "gpt2"),
    "tokenizer.ggml.pre": single("text", "gpt-2"),
    "tokenizer.ggml.tokens": list("text", words.tokens),
    "tokenizer.ggml.token_type": list("i32", words.kinds),
    "tokenizer.ggml.merges": list("text", words.merges),
    "tokenizer.ggml.bos_token_id": single("u32", shape.vocabulary - 1),
    "tokenizer.ggml.eos_token_id": single("u32", shape.vocabulary - 1),
  });
}

/** Bits of the bfloat16 or half nearest below a number. */
function bitsOf(value, type) {
  const bits = new Uint32Array(new Float32Array([Math.abs(value)]).buffer)[0];
  const half = bits < 113 << 23 ? Math.floor(Math.abs(value) * 2 ** 24) : (bits - (112 << 23)) >>> 13;
  return (type === "bf16" ? bits >>> 16 : half) | (value < 0 ? 0x8000 : 0);
}

/** Turns random bytes, whole blocks of a type, into weights of the given size. */
function shapeBlocks(bytes, typeName, rms) {
  const { bytes: blockBytes, mask, halves, signed, rms: unitRms } = types[typeName];
  if (mask !== undefined) {
    const words = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
    const smallest = bitsOf(rms / unitRms, typeName) * 0x10001;
    for (let i = 0; i < words.length; i++) words[i] = (words[i] & mask) + smallest;
    return;
  }
  for (const [offset, size] of halves) {
    // Random bits added to the bits of a half make it one to two times as large: ten, or fewer where it is subnormal.
    const smallest = bitsOf((size * rms) / unitRms, "f16");
    const spread = 2 ** Math.min(10, Math.floor(Math.log2(smallest & 0x7fff))) - 1;
    const kept = signed ? spread | 0x8000 : spread;
    for (let p = offset; p < bytes.length; p += blockBytes) {
      const half = ((bytes[p] | (bytes[p + 1] << 8)) & kept) + smallest;
      bytes[p] = half & 255;
      bytes[p + 1] = half >> 8;
    }
  }
}

const alignment = 32;
const padding = (offset) => Buffer.alloc((alignment - (offset % alignment)) % alignment);

/** Writes the file; it has its name only when it is whole. Holds a few megabytes at a time. */
export function makeGguf(shapeName, formatName, path) {
  const tensors = tensorsOf(shapeName, formatName);
  const metadata = metadataOf(shapeName, formatName);
  mkdirSync(dirname(path), { recursive: true });
  const partial = `${path}.${process.pid}.partial`;
  const fd = openSync(partial, "w");
  const random = createCipheriv("aes-128-ctr", Buffer.alloc(16, `${shapeName} ${formatName}`), Buffer.alloc(16));
  let dataBytes = 0;
  const infos = tensors.map(({ name, dims, type, bytes }) => {
    const offset = dataBytes;
    dataBytes += bytes + padding(bytes).length;
    return Buffer.concat([
      text(name),
      u32(dims.length),
      ...dims.map(u64),
      u32(type === undefined ? f32Id : types[type].id),
      u64(offset),
    ]);
  });
  const header = Buffer.concat([
    Buffer.from("GGUF"),
    u32(3),
    u64(tensors.length),
    u64(metadata.length),
    ...metadata.flatMap(([key, value]) => [text(key), value]),
    ...infos,
  ]);
  writeSync(fd, Buffer.concat([header, padding(header.length)]));
  for (const { type, bytes, rms } of tensors) {
    if (type === undefined) writeSync(fd, new Float32Array(bytes / 4).fill(1));
    else {
      const chunkBytes = Math.floor((1 << 20) / types[type].bytes) * types[type].bytes;
      for (let done = 0; done < bytes; done += chunkBytes) {
        const chunk = random.update(Buffer.alloc(Math.min(chunkBytes, bytes - done)));
        shapeBlocks(chunk, type, rms);
        writeSync(fd, chunk);
      }
    }
    writeSync(fd, padding(bytes));
  }
  closeSync(fd);
  renameSync(partial, path);
}

/** Where files lie that no `--out` was given for. */
export const defaultPath = (shapeName, formatName) =>
  fileURLToPath(new URL(`../.models/${shapeName}-${formatName}.gguf`, import.meta.url));

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const { shape, format, out } = parseArgs({
    options: { shape: { type: "string" }, format: { type: "string" }, out: { type: "string" } },
  }).values;
  if (!(shape in shapes) || !(format in formats)) {
    const usage = `--shape ${Object.keys(shapes).join("|")} --format ${Object.keys(formats).join("|")} [--out <file>]`;
    process.stderr.write(`usage: node bench/models/make-gguf.mjs ${usage}\n`);
    process.exit(1);
  }
  const path = out ?? defaultPath(shape, format);
  makeGguf(shape, format, path);
  process.stdout.write(`${path}\n`);
}
