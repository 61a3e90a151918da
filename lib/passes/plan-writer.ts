// Collects the records of a plan section by section and joins them. Knows widths, not meanings.
import { InferxError } from "../base/errors.ts";
import { invariant } from "../base/invariant.ts";
import { fnv1a64, headerBytes, maxRank, planMagic, planVersion, type SectionName, sections } from "./plan-format.ts";

/** Bytes that grow. */
class Section {
  readonly recordBytes: number;
  count = 0;
  bytes = new Uint8Array(1024);

  constructor(recordBytes: number) {
    this.recordBytes = recordBytes;
  }

  get byteLength(): number {
    return this.count * this.recordBytes;
  }

  /** Adds `count` records of zeros and returns where they begin. */
  grow(count: number): number {
    const start = this.byteLength;
    this.count += count;
    if (this.byteLength > this.bytes.length) {
      const larger = new Uint8Array(2 * this.byteLength);
      larger.set(this.bytes);
      this.bytes = larger;
    }
    return start;
  }
}

/** The fields of one record, in order. */
class RecordWriter {
  readonly index: number;
  readonly #writer: PlanWriter;
  readonly #view: DataView;
  #at = 0;

  constructor(writer: PlanWriter, index: number, view: DataView) {
    this.#writer = writer;
    this.index = index;
    this.#view = view;
  }

  #next(bytes: number): number {
    invariant(this.#at + bytes <= this.#view.byteLength, "a plan record holds its fields");
    this.#at += bytes;
    return this.#at - bytes;
  }

  u32(value: number): this {
    invariant(Number.isInteger(value) && value >= 0 && value < 2 ** 32, `u32 of a plan: ${value}`);
    this.#view.setUint32(this.#next(4), value, true);
    return this;
  }
  u64(value: number): this {
    invariant(Number.isSafeInteger(value) && value >= 0, `u64 of a plan: ${value}`);
    this.#view.setBigUint64(this.#next(8), BigInt(value), true);
    return this;
  }
  i64(value: number): this {
    this.#view.setBigInt64(this.#next(8), BigInt(value), true);
    return this;
  }
  f64(value: number): this {
    this.#view.setFloat64(this.#next(8), value, true);
    return this;
  }
  f32(value: number): this {
    this.#view.setFloat32(this.#next(4), value, true);
    return this;
  }
  str(text: string): this {
    const [start, bytes] = this.#writer.string(text);
    return this.u32(start).u32(bytes);
  }
  /** The rank and dims padded with zeros. */
  dims(dims: readonly number[]): this {
    if (dims.length > maxRank || dims.some((dim) => dim !== (dim | 0)))
      throw new InferxError("IX_PLAN", `dims [${dims}] do not fit into a plan`);
    this.u32(dims.length);
    for (let i = 0; i < maxRank; i++) this.#view.setInt32(this.#next(4), dims[i] ?? 0, true);
    return this;
  }
}

export interface PlanHeader {
  buildId: number;
  /** T, R, S. */
  bounds: readonly [number, number, number];
  arenaBytes: number;
  inputBytes: number;
}

export class PlanWriter {
  readonly #sections = new Map<SectionName, Section>(sections.map(([name, bytes]) => [name, new Section(bytes)]));
  readonly #strings = new Map<string, [start: number, bytes: number]>();

  /** Adds a record; its fields must be written before the next record of the same section is added. */
  record(name: SectionName): RecordWriter {
    const section = this.#sections.get(name)!;
    const start = section.grow(1);
    return new RecordWriter(this, section.count - 1, new DataView(section.bytes.buffer, start, section.recordBytes));
  }

  count(name: SectionName): number {
    return this.#sections.get(name)!.count;
  }

  /** Where the text lies in the string section; equal texts lie there once. */
  string(text: string): [start: number, bytes: number] {
    let place = this.#strings.get(text);
    if (!place) {
      const encoded = new TextEncoder().encode(text);
      const section = this.#sections.get("strings")!;
      const start = section.grow(encoded.length);
      section.bytes.set(encoded, start);
      place = [start, encoded.length];
      this.#strings.set(text, place);
    }
    return place;
  }

  /** @throws IX_PLAN when the plan is larger than 2 GiB. */
  finish({ buildId, bounds, arenaBytes, inputBytes }: PlanHeader): Uint8Array {
    const directory = headerBytes + 16 * sections.length;
    const align = (bytes: number) => Math.ceil(bytes / 8) * 8;
    const total = sections.reduce((sum, [name]) => sum + align(this.#sections.get(name)!.byteLength), directory);
    if (total > 2 ** 31) throw new InferxError("IX_PLAN", `the plan would take ${total} bytes`);
    const plan = new Uint8Array(total);
    const view = new DataView(plan.buffer);
    const u64 = (at: number, value: number) => view.setBigUint64(at, BigInt(value), true);
    const words = [planMagic, planVersion, buildId, 0, 1, sections.length];
    for (const [i, word] of words.entries()) view.setUint32(4 * i, word, true);
    u64(24, total);
    for (const [i, bound] of bounds.entries()) view.setUint32(40 + 4 * i, bound, true);
    u64(56, arenaBytes);
    u64(64, inputBytes);
    let offset = directory;
    for (const [i, [name, recordBytes]] of sections.entries()) {
      const section = this.#sections.get(name)!;
      plan.set(section.bytes.subarray(0, section.byteLength), offset);
      u64(headerBytes + 16 * i, offset);
      view.setUint32(headerBytes + 16 * i + 8, section.count, true);
      view.setUint32(headerBytes + 16 * i + 12, recordBytes, true);
      offset += align(section.byteLength);
    }
    const [low, high] = fnv1a64(plan.subarray(headerBytes));
    view.setUint32(32, low, true);
    view.setUint32(36, high, true);
    return plan;
  }
}
