// Walks through the header of a GGUF file: scalars, strings and arrays, little endian, through a window of 1 MiB.
// Every length is checked against the bytes that the file still has before anything is allocated for it.
import { InferxError } from "../base/errors.ts";
import type { BoundedReader } from "./bounded-reader.ts";

const windowBytes = 1 << 20;
/** A header larger than this is refused; the largest published ones have about 20 MB. */
const maxHeaderBytes = 128 << 20;
const maxStringBytes = 16 << 20;
/** Strings or nested arrays in one array; the largest published vocabulary has about 0.3 million entries, merges 0.6. */
const maxArrayObjects = 1 << 22;
const maxArrayDepth = 4;

export type GgufArray =
  | Uint8Array
  | Int8Array
  | Uint16Array
  | Int16Array
  | Uint32Array
  | Int32Array
  | Float32Array
  | Float64Array
  | BigUint64Array
  | BigInt64Array
  | boolean[]
  | string[]
  | GgufArray[];

/** 64-bit integers are numbers where they fit exactly, else bigint. */
export type GgufValue = number | bigint | boolean | string | GgufArray;

type Numbers = Exclude<GgufArray, unknown[]>;

interface NumberKind {
  bytes: number;
  read(view: DataView, at: number): number | bigint;
  array: new (buffer: ArrayBuffer) => Numbers;
}

const exact = (value: bigint): number | bigint => {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
};

/** GGUF's value type ids; 7 (bool), 8 (string) and 9 (array) are not fixed-size numbers. */
const numberKinds: Record<number, NumberKind> = {
  0: { bytes: 1, read: (v, p) => v.getUint8(p), array: Uint8Array },
  1: { bytes: 1, read: (v, p) => v.getInt8(p), array: Int8Array },
  2: { bytes: 2, read: (v, p) => v.getUint16(p, true), array: Uint16Array },
  3: { bytes: 2, read: (v, p) => v.getInt16(p, true), array: Int16Array },
  4: { bytes: 4, read: (v, p) => v.getUint32(p, true), array: Uint32Array },
  5: { bytes: 4, read: (v, p) => v.getInt32(p, true), array: Int32Array },
  6: { bytes: 4, read: (v, p) => v.getFloat32(p, true), array: Float32Array },
  10: { bytes: 8, read: (v, p) => exact(v.getBigUint64(p, true)), array: BigUint64Array },
  11: { bytes: 8, read: (v, p) => exact(v.getBigInt64(p, true)), array: BigInt64Array },
  12: { bytes: 8, read: (v, p) => v.getFloat64(p, true), array: Float64Array },
};
const boolType = 7;
const stringType = 8;
const arrayType = 9;

export class GgufCursor {
  readonly #reader: BoundedReader;
  #window: Buffer = Buffer.alloc(0);
  #view: DataView = new DataView(new ArrayBuffer(0));
  #windowStart = 0;
  #at = 0;

  constructor(reader: BoundedReader) {
    this.#reader = reader;
  }

  /** Byte offset in the file of what is read next. */
  get offset(): number {
    return this.#windowStart + this.#at;
  }

  /** Throws IX_MODEL_FORMAT with the file's name and the byte offset. */
  fail(what: string, offset = this.offset, details: Record<string, unknown> = {}): never {
    const { path } = this.#reader.file;
    throw new InferxError("IX_MODEL_FORMAT", `${path}: ${what} (byte ${offset})`, { path, offset, ...details });
  }

  /** Refuses a count of things of at least `minBytes` each that the rest of the file cannot hold. */
  checkCount(what: string, count: number, minBytes: number, offset = this.offset): void {
    const room = Math.min(this.#reader.file.sizeBytes, maxHeaderBytes) - this.offset;
    if (!(count * minBytes <= room)) this.fail(`${count} ${what} do not fit in the file`, offset, { count });
  }

  u32(): number {
    const at = this.#take(4);
    return this.#view.getUint32(at, true);
  }

  /** A 64-bit count or length; above 2^53 it becomes inexact, which no check that follows lets through. */
  u64(): number {
    const at = this.#take(8);
    return this.#view.getUint32(at, true) + this.#view.getUint32(at + 4, true) * 2 ** 32;
  }

  string(): string {
    const start = this.offset;
    const byteLength = this.u64();
    if (byteLength > maxStringBytes) this.fail(`a string of ${byteLength} bytes`, start, { byteLength });
    const at = this.#take(byteLength);
    return this.#window.toString("utf8", at, at + byteLength);
  }

  value(type: number): GgufValue {
    const start = this.offset;
    const kind = numberKinds[type];
    if (kind) {
      const at = this.#take(kind.bytes);
      return kind.read(this.#view, at);
    }
    switch (type) {
      case boolType:
        return this.#bool();
      case stringType:
        return this.string();
      case arrayType:
        return this.#array(1);
      default:
        return this.fail(`unknown value type ${type}`, start, { type });
    }
  }

  #bool(): boolean {
    const start = this.offset;
    const at = this.#take(1);
    const byte = this.#view.getUint8(at);
    if (byte > 1) this.fail(`${byte} where a boolean belongs`, start);
    return byte === 1;
  }

  #array(depth: number): GgufArray {
    const start = this.offset;
    const type = this.u32();
    const count = this.u64();
    const kind = numberKinds[type];
    this.checkCount(
      "array elements",
      count,
      kind?.bytes ?? (type === boolType ? 1 : type === stringType ? 8 : 12),
      start,
    );
    if (kind) {
      const bytes = this.#reader.readAt(this.offset, count * kind.bytes);
      this.#seek(this.offset + bytes.byteLength);
      return new kind.array(Uint8Array.prototype.slice.call(bytes).buffer as ArrayBuffer);
    }
    if (count > maxArrayObjects) this.fail(`an array of ${count} objects`, start, { count });
    switch (type) {
      case boolType:
        return Array.from({ length: count }, () => this.#bool());
      case stringType:
        return Array.from({ length: count }, () => this.string());
      case arrayType:
        if (depth === maxArrayDepth) this.fail("arrays nested too deeply", start);
        return Array.from({ length: count }, () => this.#array(depth + 1));
      default:
        return this.fail(`unknown element type ${type}`, start, { type });
    }
  }

  /** Makes the next `byteLength` bytes lie in the window, steps over them, returns where they begin in it. Call it before `#view` is read. */
  #take(byteLength: number): number {
    if (this.#at + byteLength > this.#window.byteLength) {
      const start = this.offset;
      if (start + byteLength > maxHeaderBytes) this.fail(`the header is longer than ${maxHeaderBytes} bytes`);
      const rest = this.#reader.file.sizeBytes - start;
      // Asks for no more than the file has unless the item itself needs it: then readAt refuses with the offsets.
      this.#window = this.#reader.readAt(start, Math.max(byteLength, Math.min(windowBytes, rest)));
      this.#view = new DataView(this.#window.buffer, this.#window.byteOffset, this.#window.byteLength);
      this.#windowStart = start;
      this.#at = 0;
    }
    const at = this.#at;
    this.#at += byteLength;
    return at;
  }

  #seek(offset: number): void {
    const at = offset - this.#windowStart;
    if (at <= this.#window.byteLength) {
      this.#at = at;
      return;
    }
    this.#window = Buffer.alloc(0);
    this.#windowStart = offset;
    this.#at = 0;
  }
}
