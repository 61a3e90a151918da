// Reads the headers of safetensors files, single or sharded: names, dtypes, shapes and where tensors lie.
// Trusts nothing that the files say. Format: https://github.com/huggingface/safetensors#format
import { basename, join } from "node:path";
import { InferxError } from "../base/errors.ts";
import { BoundedReader, type FileRef } from "./bounded-reader.ts";
import { type DType, dtypeBytes, dtypeOfSafetensors } from "./dtypes.ts";
import { isRecord, listFolder, readJsonFile } from "./small-files.ts";

/** The format's own limit. */
const maxHeaderBytes = 100_000_000;
const maxDims = 8;

export interface SafetensorsTensor {
  name: string;
  dtype: DType;
  /** As stored, outermost first. */
  shape: number[];
  /** Index in the files of the checkpoint. */
  file: number;
  /** From the start of the file. */
  byteOffset: number;
  byteLength: number;
}

export interface Safetensors {
  tensors: Map<string, SafetensorsTensor>;
  files: FileRef[];
}

/** Reads one file. Errors: IX_FILE_NOT_FOUND, IX_FILE_READ, IX_MODEL_FORMAT with the byte offset. */
export function readSafetensors(path: string, fileIndex = 0): Safetensors {
  const reader = new BoundedReader(path);
  try {
    return { tensors: parseHeader(reader, fileIndex), files: [reader.file] };
  } finally {
    reader.close();
  }
}

/**
 * Reads the weights of a folder: `model.safetensors`, or the shards that `model.safetensors.index.json` lists.
 * Errors: IX_FILE_NOT_FOUND, IX_FILE_READ, IX_MODEL_FORMAT (a shard or tensor is missing, a shard lies outside the folder).
 */
export function readSafetensorsFolder(folder: string): Safetensors {
  const names = new Set(listFolder(folder));
  if (names.has("model.safetensors")) return readSafetensors(join(folder, "model.safetensors"));
  if (names.has("model.safetensors.index.json"))
    return readShards(folder, join(folder, "model.safetensors.index.json"), names);
  const seen = [...names].slice(0, 20).join(", ") || "nothing";
  throw new InferxError("IX_FILE_NOT_FOUND", `no model.safetensors in ${folder} (there is ${seen})`, { path: folder });
}

function readShards(folder: string, indexPath: string, present: ReadonlySet<string>): Safetensors {
  const refuse = (what: string, details: Record<string, unknown> = {}): never => {
    throw new InferxError("IX_MODEL_FORMAT", `${indexPath}: ${what} (byte 0)`, {
      path: indexPath,
      offset: 0,
      ...details,
    });
  };
  const map = readJsonFile(indexPath, maxHeaderBytes).weight_map;
  if (!isRecord(map)) return refuse("weight_map is missing");
  const shards = new Set<string>();
  for (const [tensor, shard] of Object.entries(map)) {
    if (typeof shard !== "string" || basename(shard) !== shard || /[\\\0]/.test(shard) || shard.startsWith(".")) {
      return refuse(`weight_map names ${JSON.stringify(shard)}, not a file of this folder`, { tensor });
    }
    if (!present.has(shard)) return refuse(`shard ${shard} is missing`, { shard });
    shards.add(shard);
  }
  const all: Safetensors = { tensors: new Map(), files: [] };
  for (const shard of [...shards].sort()) {
    const { tensors, files } = readSafetensors(join(folder, shard), all.files.length);
    for (const [name, tensor] of tensors) {
      if (all.tensors.has(name)) refuse(`tensor ${name} is in two shards`, { tensor: name });
      all.tensors.set(name, tensor);
    }
    all.files.push(...files);
  }
  for (const name of Object.keys(map)) {
    if (!all.tensors.has(name)) refuse(`tensor ${name} is not in ${String(map[name])}`, { tensor: name });
  }
  return all;
}

function parseHeader(reader: BoundedReader, file: number): Map<string, SafetensorsTensor> {
  const { path, sizeBytes } = reader.file;
  const refuse = (what: string, offset: number, details: Record<string, unknown> = {}): never => {
    throw new InferxError("IX_MODEL_FORMAT", `${path}: ${what} (byte ${offset})`, { path, offset, ...details });
  };
  const headerBytes = Number(reader.readAt(0, 8).readBigUInt64LE());
  if (headerBytes > Math.min(maxHeaderBytes, sizeBytes - 8)) {
    refuse(`a header of ${headerBytes} bytes in a file of ${sizeBytes}`, 0, { headerBytes });
  }
  // The format wants the object to begin at once; looked at before the rest is read.
  if (headerBytes < 2 || reader.readAt(8, 1)[0] !== 0x7b) refuse("the header does not begin with {", 8);
  const dataStart = 8 + headerBytes;
  const header = parseHeaderJson(reader.readAt(8, headerBytes), refuse);
  const tensors = new Map<string, SafetensorsTensor>();
  for (const [name, entry] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const bad = (what: string): never => refuse(`tensor ${name}: ${what}`, 8, { tensor: name });
    if (!isRecord(entry)) return bad("its entry is not an object");
    const dtype = dtypeOfSafetensors.get(entry.dtype as string) ?? bad(`unknown dtype ${JSON.stringify(entry.dtype)}`);
    const { shape, data_offsets: range } = entry;
    if (!isCounts(shape) || shape.length > maxDims) return bad(`impossible shape ${JSON.stringify(shape)}`);
    if (!isCounts(range) || range.length !== 2) return bad(`impossible data_offsets ${JSON.stringify(range)}`);
    const [begin, end] = range as [number, number];
    const numElements = shape.reduce((product, dim) => product * dim, 1);
    const byteLength = dtypeBytes(dtype, numElements);
    if (!Number.isSafeInteger(numElements) || end - begin !== byteLength) {
      return bad(`shape [${shape}] of ${dtype} needs ${byteLength} bytes, data_offsets hold ${end - begin}`);
    }
    tensors.set(name, { name, dtype, shape, file, byteOffset: dataStart + begin, byteLength });
  }
  // The format wants the data without holes and without overlap up to the end of the file.
  const ordered = [...tensors.values()].sort((a, b) => a.byteOffset - b.byteOffset || a.byteLength - b.byteLength);
  let next = dataStart;
  for (const { name, byteOffset, byteLength } of ordered) {
    if (byteOffset !== next)
      refuse(`tensor ${name} begins where byte ${next} was expected`, byteOffset, { tensor: name });
    next = byteOffset + byteLength;
  }
  if (next !== sizeBytes) refuse(`tensors end there, the file ends at ${sizeBytes}`, next, { sizeBytes });
  return tensors;
}

function parseHeaderJson(bytes: Buffer, refuse: (what: string, offset: number) => never): Record<string, unknown> {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (error) {
    return refuse(`the header is not JSON: ${(error as Error).message}`, 8);
  }
}

function isCounts(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((item) => Number.isSafeInteger(item) && item >= 0);
}
