// Reads the header of a GGUF file (version 2 or 3), or of all files of a split one: metadata and where tensors lie.
// Trusts nothing that the file says. Not here: what names and keys mean (gguf-names.ts, gguf-config.ts).
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
import { basename, dirname, join } from "node:path";
import { InferxError } from "../base/errors.ts";
import { BoundedReader, type FileRef } from "./bounded-reader.ts";
import { type DType, dtypeBytes, dtypeOfGgml, dtypes } from "./dtypes.ts";
import { GgufCursor, type GgufValue } from "./gguf-cursor.ts";

const magic = 0x46554747; // "GGUF", little endian
const maxDims = 4;
const maxNameBytes = 1024;
const maxAlignment = 1 << 20;

export interface GgufTensor {
  name: string;
  dtype: DType;
  /** In GGUF's order, innermost first. */
  dims: number[];
  /** Index in `GgufFile.files`. */
  file: number;
  /** From the start of the file. */
  byteOffset: number;
  byteLength: number;
}

export interface GgufFile {
  version: number;
  metadata: Map<string, GgufValue>;
  tensors: Map<string, GgufTensor>;
  files: FileRef[];
}

/**
 * Reads the header of the file at `path`, and of its siblings when it is part of a split model
 * (`x-00001-of-00003.gguf`; any part may be given).
 * Errors: IX_FILE_NOT_FOUND (also for a missing part), IX_FILE_READ, IX_MODEL_FORMAT with the byte offset.
 */
export function readGguf(path: string): GgufFile {
  const given = readPart(path, 0);
  const numParts = given.metadata.get("split.count") ?? 1;
  if (numParts === 1) return { ...given, files: [given.file] };
  return readSplit(path, numParts);
}

interface GgufPart {
  version: number;
  metadata: Map<string, GgufValue>;
  tensors: Map<string, GgufTensor>;
  file: FileRef;
}

function readSplit(path: string, numParts: GgufValue): GgufFile {
  const refuse = (what: string, at = path): never => {
    throw new InferxError("IX_MODEL_FORMAT", `${at}: ${what} (byte 0)`, { path: at, offset: 0 });
  };
  const name = /^(.*)-(\d{5})-of-(\d{5})\.gguf$/.exec(basename(path));
  if (!name || Number(name[3]) !== numParts) {
    return refuse(`split.count is ${String(numParts)}, but the file's name does not say so`);
  }
  const tensors = new Map<string, GgufTensor>();
  const files: FileRef[] = [];
  let first: GgufPart | undefined;
  for (let index = 0; index < Number(name[3]); index++) {
    const partPath = join(dirname(path), `${name[1]}-${String(index + 1).padStart(5, "0")}-of-${name[3]}.gguf`);
    const part = readPart(partPath, index);
    first ??= part;
    if (part.metadata.get("split.count") !== numParts) refuse(`split.count is not ${String(numParts)}`, partPath);
    if (part.metadata.get("split.no") !== index) refuse(`split.no is not ${index}`, partPath);
    for (const [key, tensor] of part.tensors) {
      if (tensors.has(key)) refuse(`tensor ${key} is in another part too`, partPath);
      tensors.set(key, tensor);
    }
    files.push(part.file);
  }
  const { version, metadata } = first ?? refuse("split.count is 0");
  const total = metadata.get("split.tensors.count");
  if (total !== tensors.size) refuse(`split.tensors.count is ${String(total)}, the parts hold ${tensors.size}`);
  return { version, metadata, tensors, files };
}

function readPart(path: string, fileIndex: number): GgufPart {
  const reader = new BoundedReader(path);
  try {
    return parseHeader(reader, fileIndex);
  } finally {
    reader.close();
  }
}

function parseHeader(reader: BoundedReader, fileIndex: number): GgufPart {
  const cursor = new GgufCursor(reader);
  if (cursor.u32() !== magic) cursor.fail("does not begin with GGUF", 0);
  const version = cursor.u32();
  if (version !== 2 && version !== 3) {
    const bigEndian = version !== 0 && (version & 0xffff) === 0;
    cursor.fail(bigEndian ? "a big-endian GGUF file" : `GGUF version ${version}, expected 2 or 3`, 4, { version });
  }
  const numTensors = cursor.u64();
  // name length, one name byte, number of dims, one dim, type, offset
  cursor.checkCount("tensors", numTensors, 8 + 1 + 4 + 8 + 4 + 8, 8);
  const numKeys = cursor.u64();
  cursor.checkCount("metadata keys", numKeys, 8 + 1 + 4 + 1, 16);

  const metadata = new Map<string, GgufValue>();
  for (let i = 0; i < numKeys; i++) {
    const start = cursor.offset;
    const key = readName(cursor, "metadata key");
    if (metadata.has(key)) cursor.fail(`metadata key ${key} twice`, start);
    metadata.set(key, cursor.value(cursor.u32()));
  }

  const tensors = new Map<string, GgufTensor>();
  for (let i = 0; i < numTensors; i++) {
    const start = cursor.offset;
    const tensor = readTensor(cursor, fileIndex);
    if (tensors.has(tensor.name)) cursor.fail(`tensor ${tensor.name} twice`, start);
    tensors.set(tensor.name, tensor);
  }
  placeTensors(cursor, reader.file, metadata, [...tensors.values()]);
  return { version, metadata, tensors, file: reader.file };
}

function readName(cursor: GgufCursor, what: string): string {
  const start = cursor.offset;
  const name = cursor.string();
  if (name.length === 0 || name.length > maxNameBytes) cursor.fail(`a ${what} of ${name.length} characters`, start);
  return name;
}

/** One tensor's entry; `byteOffset` still counts from the start of the data section. */
function readTensor(cursor: GgufCursor, file: number): GgufTensor {
  const start = cursor.offset;
  const name = readName(cursor, "tensor name");
  const numDims = cursor.u32();
  if (numDims < 1 || numDims > maxDims) cursor.fail(`tensor ${name} has ${numDims} dimensions`, start, { numDims });
  const dims = Array.from({ length: numDims }, () => cursor.u64());
  const numElements = dims.reduce((product, dim) => product * dim, 1);
  if (dims.includes(0) || !Number.isSafeInteger(numElements)) {
    cursor.fail(`tensor ${name} has the impossible shape ${dims.join(" x ")}`, start, { dims });
  }
  const type = cursor.u32();
  const dtype = dtypeOfGgml.get(type) ?? cursor.fail(`tensor ${name} has the unknown type ${type}`, start, { type });
  const { blockElements } = dtypes[dtype];
  if (dims[0]! % blockElements !== 0) {
    cursor.fail(`tensor ${name}: rows of ${dims[0]} are not whole ${dtype} blocks of ${blockElements}`, start, {
      dims,
    });
  }
  return { name, dtype, dims, file, byteOffset: cursor.u64(), byteLength: dtypeBytes(dtype, numElements) };
}

/** Turns offsets into offsets from the start of the file and checks alignment, range and overlap. */
function placeTensors(
  cursor: GgufCursor,
  file: FileRef,
  metadata: ReadonlyMap<string, GgufValue>,
  tensors: GgufTensor[],
): void {
  const alignment = metadata.get("general.alignment") ?? 32;
  if (typeof alignment !== "number" || alignment > maxAlignment || !/^10*$/.test(alignment.toString(2))) {
    throw cursor.fail(`general.alignment is ${String(alignment)}, not a power of two up to ${maxAlignment}`);
  }
  const dataStart = Math.ceil(cursor.offset / alignment) * alignment;
  for (const tensor of tensors) {
    const { name, byteOffset, byteLength } = tensor;
    if (byteOffset % alignment !== 0) cursor.fail(`tensor ${name} is not aligned to ${alignment}`, byteOffset);
    tensor.byteOffset = dataStart + byteOffset;
    if (!(tensor.byteOffset + byteLength <= file.sizeBytes)) {
      const what = `tensor ${name} with ${byteLength} bytes lies beyond the end of the file at ${file.sizeBytes}`;
      cursor.fail(what, tensor.byteOffset, { byteLength, sizeBytes: file.sizeBytes });
    }
  }
  tensors.sort((a, b) => a.byteOffset - b.byteOffset);
  for (const [index, tensor] of tensors.entries()) {
    const before = tensors[index - 1];
    if (before && before.byteOffset + before.byteLength > tensor.byteOffset) {
      cursor.fail(`tensors ${before.name} and ${tensor.name} overlap`, tensor.byteOffset);
    }
  }
}
