// Writes small GGUF files for tests, also wrong ones: whatever is asked for, unchecked.
import { type DType, dtypes } from "../../lib/formats/dtypes.ts";

export type TypedValue =
  | { type: "u8" | "i8" | "u16" | "i16" | "u32" | "i32" | "f32" | "f64"; value: number }
  | { type: "u64" | "i64"; value: bigint }
  | { type: "bool"; value: boolean }
  | { type: "string"; value: string }
  | { type: "array"; of: TypedValue["type"]; value: TypedValue[] };

export interface WrittenTensor {
  name: string;
  dtype: DType;
  /** Innermost first. */
  dims: (number | bigint)[];
  data?: Uint8Array;
  offset?: bigint;
  ggmlType?: number;
}

const typeIds = {
  u8: 0,
  i8: 1,
  u16: 2,
  i16: 3,
  u32: 4,
  i32: 5,
  f32: 6,
  bool: 7,
  string: 8,
  array: 9,
  u64: 10,
  i64: 11,
  f64: 12,
};

/** A growing little-endian byte sequence. */
class Bytes {
  #parts: Buffer[] = [];
  byteLength = 0;

  add(part: Buffer): void {
    this.#parts.push(part);
    this.byteLength += part.byteLength;
  }

  number(bytes: number, write: (buffer: Buffer) => void): void {
    const buffer = Buffer.alloc(bytes);
    write(buffer);
    this.add(buffer);
  }

  u32 = (value: number): void => this.number(4, (b) => b.writeUInt32LE(value));
  u64 = (value: number | bigint): void => this.number(8, (b) => b.writeBigUInt64LE(BigInt(value)));

  string(text: string): void {
    const bytes = Buffer.from(text);
    this.u64(bytes.byteLength);
    this.add(bytes);
  }

  value(value: TypedValue): void {
    switch (value.type) {
      case "u8":
        this.number(1, (b) => b.writeUInt8(value.value));
        break;
      case "i8":
        this.number(1, (b) => b.writeInt8(value.value));
        break;
      case "u16":
        this.number(2, (b) => b.writeUInt16LE(value.value));
        break;
      case "i16":
        this.number(2, (b) => b.writeInt16LE(value.value));
        break;
      case "u32":
        this.u32(value.value);
        break;
      case "i32":
        this.number(4, (b) => b.writeInt32LE(value.value));
        break;
      case "f32":
        this.number(4, (b) => b.writeFloatLE(value.value));
        break;
      case "f64":
        this.number(8, (b) => b.writeDoubleLE(value.value));
        break;
      case "u64":
        this.u64(value.value);
        break;
      case "i64":
        this.number(8, (b) => b.writeBigInt64LE(value.value));
        break;
      case "bool":
        this.number(1, (b) => b.writeUInt8(value.value ? 1 : 0));
        break;
      case "string":
        this.string(value.value);
        break;
      case "array":
        this.u32(typeIds[value.of]);
        this.u64(value.value.length);
        for (const item of value.value) this.value(item);
    }
  }

  pad(alignment: number): void {
    this.add(Buffer.alloc((alignment - (this.byteLength % alignment)) % alignment));
  }

  concat(): Buffer {
    return Buffer.concat(this.#parts);
  }
}

export interface WriteOptions {
  version?: number;
  alignment?: number;
  numTensors?: bigint;
  numKeys?: bigint;
}

/** The bytes of a GGUF file. Tensors without `data` get zeros, without `offset` the next aligned place. */
export function writeGguf(
  metadata: [string, TypedValue][],
  tensors: WrittenTensor[],
  options: WriteOptions = {},
): Buffer {
  const {
    version = 3,
    alignment = 32,
    numTensors = BigInt(tensors.length),
    numKeys = BigInt(metadata.length),
  } = options;
  const header = new Bytes();
  header.add(Buffer.from("GGUF"));
  header.u32(version);
  header.u64(numTensors);
  header.u64(numKeys);
  for (const [key, value] of metadata) {
    header.string(key);
    header.u32(typeIds[value.type]);
    header.value(value);
  }
  const data = new Bytes();
  for (const tensor of tensors) {
    const { blockElements, blockBytes, ...info } = dtypes[tensor.dtype];
    const numElements = tensor.dims.reduce<number>((product, dim) => product * Number(dim), 1);
    header.string(tensor.name);
    header.u32(tensor.dims.length);
    for (const dim of tensor.dims) header.u64(dim);
    header.u32(tensor.ggmlType ?? ("ggmlType" in info ? info.ggmlType : 0));
    header.u64(tensor.offset ?? data.byteLength);
    if (tensor.offset === undefined) {
      data.add(Buffer.from(tensor.data ?? new Uint8Array((numElements / blockElements) * blockBytes)));
      data.pad(alignment);
    }
  }
  header.pad(alignment);
  header.add(data.concat());
  return header.concat();
}

export const u32 = (value: number): TypedValue => ({ type: "u32", value });
export const f32 = (value: number): TypedValue => ({ type: "f32", value });
export const text = (value: string): TypedValue => ({ type: "string", value });
export const texts = (values: string[]): TypedValue => ({ type: "array", of: "string", value: values.map(text) });
export const i32s = (values: number[]): TypedValue => ({
  type: "array",
  of: "i32",
  value: values.map((value) => ({ type: "i32", value })),
});
