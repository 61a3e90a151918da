// The GGUF header parser: every value type, split files, hostile files, and bytes mutated at random.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, describe, expect, test } from "vitest";
import { InferxError } from "../../lib/base/errors.ts";
import { BoundedReader, checkUnchanged } from "../../lib/formats/bounded-reader.ts";
import { readGguf } from "../../lib/formats/gguf.ts";
import { errorOf } from "./error-of.ts";
import {
  f32,
  i32s,
  type TypedValue,
  text,
  texts,
  u32,
  type WriteOptions,
  type WrittenTensor,
  writeGguf,
} from "./gguf-writer.ts";

const folder = mkdtempSync(join(tmpdir(), "ix-gguf-"));
afterAll(() => rmSync(folder, { recursive: true }));

function save(bytes: Uint8Array, name = "x.gguf"): string {
  const path = join(folder, name);
  writeFileSync(path, bytes);
  return path;
}

function read(metadata: [string, TypedValue][], tensors: WrittenTensor[] = [], options: WriteOptions = {}) {
  return readGguf(save(writeGguf(metadata, tensors, options)));
}

/** IX_MODEL_FORMAT with a byte offset in message and details. */
function expectFormatError(action: () => unknown, message: RegExp): void {
  const error = errorOf(action);
  expect(error.code).toBe("IX_MODEL_FORMAT");
  expect(error.message).toMatch(message);
  expect(error.message).toMatch(/byte/);
  expect(error.details.offset).toBeTypeOf("number");
}

const matrix: WrittenTensor = { name: "m", dtype: "q8_0", dims: [64, 3] };

describe("what a file says", () => {
  test("all value types", () => {
    const values: [string, TypedValue][] = [
      ["a", { type: "u8", value: 200 }],
      ["b", { type: "i8", value: -100 }],
      ["c", { type: "u16", value: 60_000 }],
      ["d", { type: "i16", value: -30_000 }],
      ["e", u32(4_000_000_000)],
      ["f", { type: "i32", value: -2_000_000_000 }],
      ["g", f32(0.5)],
      ["h", { type: "f64", value: Math.PI }],
      ["i", { type: "u64", value: 2n ** 53n - 1n }],
      ["j", { type: "u64", value: 2n ** 64n - 1n }],
      ["k", { type: "i64", value: -5n }],
      ["l", { type: "bool", value: true }],
      ["m", text("größer 日本")],
      ["n", texts(["", "x", "ĠĠ"])],
      ["o", i32s([1, -2])],
      ["p", { type: "array", of: "bool", value: [{ type: "bool", value: false }] }],
      ["q", { type: "array", of: "array", value: [i32s([7]), texts(["y"])] }],
      ["r", i32s([])],
    ];
    const { metadata, version } = read(values);
    expect(version).toBe(3);
    expect(Object.fromEntries(metadata)).toEqual({
      a: 200,
      b: -100,
      c: 60_000,
      d: -30_000,
      e: 4_000_000_000,
      f: -2_000_000_000,
      g: 0.5,
      h: Math.PI,
      i: 2 ** 53 - 1,
      j: 2n ** 64n - 1n,
      k: -5,
      l: true,
      m: "größer 日本",
      n: ["", "x", "ĠĠ"],
      o: Int32Array.of(1, -2),
      p: [false],
      q: [Int32Array.of(7), ["y"]],
      r: new Int32Array(),
    });
  });

  test("strings and arrays larger than the read window", () => {
    const long = "ab".repeat(1_500_000);
    const many = Array.from({ length: 120_000 }, (_, i) => `token ${i}`);
    const numbers = Array.from({ length: 400_000 }, (_, i) => i);
    const { metadata } = read([
      ["long", text(long)],
      ["many", texts(many)],
      ["numbers", i32s(numbers)],
      ["after", u32(9)],
    ]);
    expect(metadata.get("long")).toBe(long);
    expect(metadata.get("many")).toEqual(many);
    expect(metadata.get("numbers")).toEqual(Int32Array.from(numbers));
    expect(metadata.get("after")).toBe(9);
  });

  test.each([2, 3])("tensors, version %i, with an alignment of its own", (version) => {
    const data = Uint8Array.from({ length: 12 }, (_, i) => i + 1);
    const tensors: WrittenTensor[] = [{ name: "v", dtype: "f32", dims: [3], data }, matrix];
    const { tensors: found, files } = read([["general.alignment", u32(64)]], tensors, { version, alignment: 64 });
    const v = found.get("v")!;
    expect(v).toMatchObject({ dtype: "f32", dims: [3], byteLength: 12, file: 0 });
    expect(v.byteOffset % 64).toBe(0);
    expect(found.get("m")).toMatchObject({
      dtype: "q8_0",
      dims: [64, 3],
      byteOffset: v.byteOffset + 64,
      byteLength: 204,
    });
    using reader = new BoundedReader(files[0]!.path);
    expect(new Uint8Array(reader.readAt(v.byteOffset, v.byteLength))).toEqual(data);
  });
});

describe("split files", () => {
  const part = (no: number, count: number, total: number, name: string) =>
    writeGguf(
      [
        ["split.no", { type: "u16", value: no }],
        ["split.count", { type: "u16", value: count }],
        ["split.tensors.count", { type: "i32", value: total }],
        ["from", u32(no)],
      ],
      [{ name, dtype: "f32", dims: [4] }],
    );

  test("any part finds the others; the first one's metadata counts", () => {
    save(part(0, 2, 2, "a"), "s-00001-of-00002.gguf");
    const second = save(part(1, 2, 2, "b"), "s-00002-of-00002.gguf");
    const { tensors, metadata, files } = readGguf(second);
    expect([...tensors.values()].map(({ name, file }) => [name, file])).toEqual([
      ["a", 0],
      ["b", 1],
    ]);
    expect(metadata.get("from")).toBe(0);
    expect(files.map((file) => file.path.slice(-9))).toEqual(["0002.gguf", "0002.gguf"]);
  });

  test("a missing part, a wrong count, a wrong name, a tensor twice", () => {
    const first = save(part(0, 2, 2, "a"), "t-00001-of-00002.gguf");
    expect(errorOf(() => readGguf(first))).toMatchObject({ code: "IX_FILE_NOT_FOUND" });
    save(part(1, 2, 2, "a"), "t-00002-of-00002.gguf");
    expectFormatError(() => readGguf(first), /another part/);
    save(part(1, 2, 3, "b"), "t-00002-of-00002.gguf");
    save(part(0, 2, 3, "a"), "t-00001-of-00002.gguf");
    expectFormatError(() => readGguf(first), /split\.tensors\.count/);
    save(part(0, 2, 2, "b"), "t-00002-of-00002.gguf");
    expectFormatError(() => readGguf(first), /split\.no/);
    expectFormatError(() => readGguf(save(part(0, 2, 2, "a"))), /name does not say so/);
  });
});

describe("hostile files", () => {
  const hostile: [string, RegExp, () => unknown][] = [
    ["an empty file", /ends at byte 0/, () => readGguf(save(Buffer.alloc(0)))],
    ["not GGUF", /GGUF/, () => readGguf(save(Buffer.alloc(100, "x")))],
    [
      "88 bytes",
      /do not fit/,
      () => readGguf(save(writeGguf([], [], { numTensors: 2n ** 60n, numKeys: 5n }).subarray(0, 88))),
    ],
    ["version 1", /version 1/, () => read([], [], { version: 1 })],
    ["big endian", /big-endian/, () => read([], [], { version: 0x03000000 })],
    ["2^60 keys", /metadata keys do not fit/, () => read([], [matrix], { numKeys: 2n ** 60n })],
    ["2^60 tensors", /tensors do not fit/, () => read([], [], { numTensors: 2n ** 60n })],
    ["a string of 2^60 bytes", /string of/, () => patchedType(8)],
    ["an array of 2^60 bytes", /array elements do not fit/, () => patchedArray(0, 2n ** 60n)],
    ["an array of 2^60 strings", /array elements do not fit/, () => patchedArray(8, 2n ** 60n)],
    ["an unknown value type", /unknown value type 77/, () => patchedType(77)],
    ["an unknown element type", /unknown element type 78/, () => patchedArray(78, 0n)],
    ["arrays in arrays in arrays", /nested too deeply/, () => read([["k", nested(12)]])],
    ["a boolean of 2", /boolean/, () => patchedType(7, 2)],
    [
      "a key twice",
      /key k twice/,
      () =>
        read([
          ["k", u32(1)],
          ["k", u32(2)],
        ]),
    ],
    ["a key without a name", /metadata key of 0/, () => read([["", u32(1)]])],
    ["a tensor twice", /m twice/, () => read([], [matrix, matrix])],
    ["an unknown tensor type", /unknown type 99/, () => read([], [{ ...matrix, ggmlType: 99 }])],
    ["no dimensions", /0 dimensions/, () => read([], [{ ...matrix, dims: [] }])],
    ["five dimensions", /5 dimensions/, () => read([], [{ ...matrix, dims: [32, 1, 1, 1, 1] }])],
    ["a dimension of zero", /impossible shape/, () => read([], [{ ...matrix, dims: [32, 0] }])],
    [
      "a product beyond 2^53",
      /impossible shape/,
      () => read([], [{ ...matrix, dims: [2n ** 40n, 2n ** 40n], offset: 0n }]),
    ],
    [
      "a dimension of 2^64 - 1",
      /impossible shape/,
      () => read([], [{ ...matrix, dims: [2n ** 64n - 1n], offset: 0n }]),
    ],
    ["half a block", /not whole q8_0 blocks/, () => read([], [{ ...matrix, dims: [48], data: new Uint8Array(64) }])],
    ["an offset beyond the end", /beyond the end/, () => read([], [{ ...matrix, offset: 2n ** 40n }])],
    ["an offset of 2^64 - 32", /beyond the end/, () => read([], [{ ...matrix, offset: 2n ** 64n - 32n }])],
    ["an unaligned offset", /not aligned/, () => read([], [matrix, { ...matrix, name: "n", offset: 8n }])],
    [
      "overlapping tensors",
      /overlap/,
      () => read([], [matrix, { ...matrix, name: "n", offset: 32n }, { ...matrix, name: "o" }]),
    ],
    ["an alignment of 0", /alignment/, () => read([["general.alignment", u32(0)]])],
    ["an alignment of 48", /alignment/, () => read([["general.alignment", u32(48)]])],
    ["an alignment that is a text", /alignment/, () => read([["general.alignment", text("32")]])],
    ["a header cut short", /ends at byte 60/, () => readGguf(save(writeGguf([], [matrix]).subarray(0, 60)))],
  ];

  /** A key `k` of a u32, whose type and value are overwritten. */
  function patchedType(type: number, value = 1): unknown {
    const bytes = writeGguf(
      [["k", { type: "array", of: "u64", value: [{ type: "u64", value: 2n ** 60n }] }]],
      [matrix],
    );
    bytes.writeUInt32LE(type, 24 + 9);
    if (type === 8) bytes.writeBigUInt64LE(2n ** 60n, 24 + 13);
    else bytes.writeUInt32LE(value, 24 + 13);
    return readGguf(save(bytes));
  }

  function patchedArray(type: number, count: bigint): unknown {
    const bytes = writeGguf([["k", i32s([1, 2, 3])]], [matrix]);
    bytes.writeUInt32LE(type, 24 + 13);
    bytes.writeBigUInt64LE(count, 24 + 17);
    return readGguf(save(bytes));
  }

  function nested(depth: number): TypedValue {
    return depth === 0 ? i32s([1]) : { type: "array", of: "array", value: [nested(depth - 1)] };
  }

  test.each(hostile)("%s", (_, message, action) => expectFormatError(action, message));

  test("every truncation of a valid file", () => {
    const bytes = writeGguf(
      [
        ["k", texts(["a", "b"])],
        ["n", i32s([1, 2])],
      ],
      [matrix, { ...matrix, name: "n" }],
    );
    // The padding behind the last tensor is not part of it.
    for (let length = 0; length < bytes.byteLength - 32; length++) {
      expect(errorOf(() => readGguf(save(bytes.subarray(0, length)))).code).toBe("IX_MODEL_FORMAT");
    }
  });

  test("a path that is not a file", () => {
    expect(errorOf(() => readGguf(join(folder, "absent.gguf")))).toMatchObject({ code: "IX_FILE_NOT_FOUND" });
    expect(errorOf(() => readGguf(folder))).toMatchObject({ code: "IX_MODEL_FORMAT" });
  });
});

test("mutated bytes parse or are refused as IX_MODEL_FORMAT, without large allocations", () => {
  const valid = writeGguf(
    [
      ["general.architecture", text("llama")],
      ["tokens", texts(["<s>", "a", "b"])],
      ["scores", { type: "array", of: "f32", value: [f32(1), f32(2)] }],
      ["deep", { type: "array", of: "array", value: [i32s([1]), texts(["x"])] }],
      ["big", { type: "u64", value: 2n ** 40n }],
    ],
    [matrix, { name: "norm", dtype: "f32", dims: [8] }, { name: "k", dtype: "q4_k", dims: [256, 2] }],
  );
  const at = fc.nat(valid.byteLength - 1);
  const huge = fc.constantFrom(2n ** 64n - 1n, 2n ** 63n, 2n ** 60n, 2n ** 53n, 2n ** 32n, 2n ** 31n, 1n, 0n);
  const mutation = fc.oneof(
    fc.tuple(at, fc.integer({ min: 1, max: 255 })).map(([p, flip]) => (b: Buffer) => {
      if (p < b.byteLength) b[p]! ^= flip;
      return b;
    }),
    at.map((p) => (b: Buffer) => b.subarray(0, p)),
    fc.tuple(at, fc.uint8Array({ minLength: 1, maxLength: 40 })).map(
      ([p, more]) =>
        (b: Buffer) =>
          Buffer.concat([b.subarray(0, p), more, b.subarray(p)]),
    ),
    fc.tuple(at, huge).map(([p, value]) => (b: Buffer) => {
      if (p + 8 <= b.byteLength) b.writeBigUInt64LE(value, p);
      return b;
    }),
  );
  const before = process.memoryUsage();
  fc.assert(
    fc.property(fc.array(mutation, { minLength: 1, maxLength: 4 }), (mutations) => {
      let bytes: Buffer = Buffer.from(valid);
      for (const mutate of mutations) bytes = mutate(bytes);
      try {
        readGguf(save(bytes));
      } catch (error) {
        expect(InferxError.is(error) && [error.code, typeof error.details.offset]).toEqual([
          "IX_MODEL_FORMAT",
          "number",
        ]);
      }
    }),
    { numRuns: 3000 },
  );
  expect(process.memoryUsage().rss - before.rss).toBeLessThan(300 << 20);
});

test("a file that was replaced or truncated after opening is noticed", () => {
  const path = save(writeGguf([], [matrix]), "changing.gguf");
  const { files } = readGguf(path);
  checkUnchanged(files[0]!);
  using reader = new BoundedReader(path);
  writeFileSync(path, Buffer.alloc(10));
  expect(errorOf(() => checkUnchanged(files[0]!)).code).toBe("IX_FILE_CHANGED");
  expect(errorOf(() => reader.readAt(20, 50)).code).toBe("IX_FILE_CHANGED");
  rmSync(path);
  expect(errorOf(() => checkUnchanged(files[0]!)).code).toBe("IX_FILE_CHANGED");
});
