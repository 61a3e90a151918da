// Takes a plan file apart into records, with every bound checked: IX_PLAN for anything that is not as docs/plan.md says.
// Knows widths, not meanings (decode.ts).
import { InferxError } from "../base/errors.ts";
import { fnv1a64, headerBytes, maxRank, planMagic, planVersion, type SectionName, sections } from "./plan-format.ts";

export function require(condition: boolean, what: string): asserts condition {
  if (!condition) throw new InferxError("IX_PLAN", `damaged plan: ${what}`);
}

/** The fields of one record, in order. */
export class RecordReader {
  readonly #reader: PlanReader;
  readonly #view: DataView;
  #at = 0;

  constructor(reader: PlanReader, view: DataView) {
    this.#reader = reader;
    this.#view = view;
  }

  u32(): number {
    this.#at += 4;
    return this.#view.getUint32(this.#at - 4, true);
  }
  i64(): number {
    this.#at += 8;
    const value = Number(this.#view.getBigInt64(this.#at - 8, true));
    require(Number.isSafeInteger(value), `number ${value}`);
    return value;
  }
  u64(): number {
    const value = this.i64();
    require(value >= 0, `number ${value}`);
    return value;
  }
  f64(): number {
    this.#at += 8;
    return this.#view.getFloat64(this.#at - 8, true);
  }
  str(): string {
    return this.#reader.string(this.u32(), this.u32());
  }
  dims(): number[] {
    const rank = this.u32();
    require(rank <= maxRank, `rank ${rank}`);
    const dims = Array.from({ length: maxRank }, (_, i) => this.#view.getInt32(this.#at + 4 * i, true));
    this.#at += 4 * maxRank;
    require(dims.every((d, i) => (i < rank ? d >= 0 || (i === 0 && d >= -3) : d === 0)), `dims ${dims}`);
    return dims.slice(0, rank);
  }
  /** A number below `count`: a reference, or a code. */
  index(count: number, what: string): number {
    const value = this.u32();
    require(value < count, `${what} ${value} of ${count}`);
    return value;
  }
  /** First and count of a run of records. */
  run(section: SectionName): [first: number, count: number] {
    const [first, count] = [this.u32(), this.u32()];
    require(first + count <= this.#reader.count(section), `${section} ${first} + ${count}`);
    return [first, count];
  }
}

export class PlanReader {
  /** From byte 8: build id, rank, world; bounds of T, R, S; bytes of arena and input set. */
  readonly header: {
    buildId: number;
    rank: number;
    world: number;
    bounds: [number, number, number];
    arenaBytes: number;
    inputBytes: number;
  };
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  readonly #sections = new Map<SectionName, { offset: number; count: number; recordBytes: number }>();

  constructor(bytes: Uint8Array) {
    const directory = headerBytes + 16 * sections.length;
    require(bytes.length >= directory, `${bytes.length} bytes`);
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const u32 = (at: number) => this.#view.getUint32(at, true);
    const u64 = (at: number) => u32(at) + u32(at + 4) * 2 ** 32;
    require(u32(0) === planMagic && u32(4) === planVersion, "magic or version");
    require(u32(20) === sections.length && u64(24) === bytes.length, "number of sections or bytes");
    const [low, high] = fnv1a64(bytes.subarray(headerBytes));
    require(u32(32) === low && u32(36) === high, "checksum");
    require(u32(12) < u32(16) && u32(52) === 0, "rank or reserved field");
    this.header = {
      buildId: u32(8),
      rank: u32(12),
      world: u32(16),
      bounds: [u32(40), u32(44), u32(48)],
      arenaBytes: u64(56),
      inputBytes: u64(64),
    };
    let end = directory;
    for (const [i, [name, recordBytes]] of sections.entries()) {
      const at = headerBytes + 16 * i;
      const [offset, count] = [u64(at), u32(at + 8)];
      require(u32(at + 12) === recordBytes, `record width of ${name}`);
      require(offset % 8 === 0 && offset >= end && offset + count * recordBytes <= bytes.length, `place of ${name}`);
      this.#sections.set(name, { offset, count, recordBytes });
      end = offset + count * recordBytes;
    }
  }

  count(name: SectionName): number {
    return this.#sections.get(name)!.count;
  }

  record(name: SectionName, index: number): RecordReader {
    const { offset, count, recordBytes } = this.#sections.get(name)!;
    require(index < count, `${name} ${index}`);
    const start = this.#bytes.byteOffset + offset + index * recordBytes;
    return new RecordReader(this, new DataView(this.#bytes.buffer, start, recordBytes));
  }

  records<T>(name: SectionName, read: (record: RecordReader) => T): T[] {
    return Array.from({ length: this.count(name) }, (_, i) => read(this.record(name, i)));
  }

  string(start: number, bytes: number): string {
    const { offset, count } = this.#sections.get("strings")!;
    require(start + bytes <= count, `string ${start} + ${bytes}`);
    return new TextDecoder().decode(this.#bytes.subarray(offset + start, offset + start + bytes));
  }

  floats(first: number, count: number): Float32Array {
    const { offset } = this.#sections.get("floats")!;
    require(first + count <= this.count("floats"), `floats ${first} + ${count}`);
    return Float32Array.from({ length: count }, (_, i) => this.#view.getFloat32(offset + 4 * (first + i), true));
  }
}
