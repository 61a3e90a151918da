// The safetensors header parser: dtypes, shards, hostile files, and bytes mutated at random.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, describe, expect, test } from "vitest";
import { InferxError } from "../../lib/base/errors.ts";
import { readSafetensors, readSafetensorsFolder } from "../../lib/formats/safetensors.ts";
import { errorOf } from "./error-of.ts";

const root = mkdtempSync(join(tmpdir(), "ix-safetensors-"));
afterAll(() => rmSync(root, { recursive: true }));

type Entry = { dtype: unknown; shape: unknown; data_offsets: unknown };

/** A file with any header text and `dataBytes` bytes behind it. */
function fileOf(header: string, dataBytes: number, headerBytes = BigInt(Buffer.byteLength(header))): Buffer {
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(headerBytes);
  return Buffer.concat([length, Buffer.from(header), Buffer.alloc(dataBytes)]);
}

function read(bytes: Buffer) {
  const path = join(root, "x.safetensors");
  writeFileSync(path, bytes);
  return readSafetensors(path).tensors;
}

const readHeader = (header: Record<string, unknown>, dataBytes: number) =>
  read(fileOf(JSON.stringify(header), dataBytes));
const f32 = (begin: number, end: number, shape: unknown = [(end - begin) / 4]): Entry => ({
  dtype: "F32",
  shape,
  data_offsets: [begin, end],
});

test("dtypes, shapes and places", () => {
  const names = "F32 F16 BF16 F64 I8 U8 I16 U16 I32 U32 I64 U64 BOOL F8_E4M3 F8_E5M2".split(" ");
  const sizes = [4, 2, 2, 8, 1, 1, 2, 2, 4, 4, 8, 8, 1, 1, 1];
  let at = 0;
  const header: Record<string, unknown> = { __metadata__: { format: "pt" } };
  for (const [i, dtype] of names.entries())
    header[`t${i}`] = { dtype, shape: [2, 3], data_offsets: [at, (at += sizes[i]! * 6)] };
  header.scalar = f32(at, at + 4, []);
  header.empty = f32(at + 4, at + 4, [0, 5]);
  const tensors = readHeader(header, at + 4);
  expect([...tensors.values()].map((tensor) => tensor.byteLength)).toEqual([...sizes.map((size) => size * 6), 4, 0]);
  expect(tensors.get("t2")).toMatchObject({ dtype: "bf16", shape: [2, 3], file: 0 });
  expect(tensors.get("t1")!.byteOffset - tensors.get("t0")!.byteOffset).toBe(24);
});

describe("hostile files", () => {
  test.each<[string, RegExp, () => unknown]>([
    ["an empty file", /ends at byte 0/, () => read(Buffer.alloc(0))],
    ["88 bytes with a header of 2^60", /header of/, () => read(fileOf(" ".repeat(80), 0, 2n ** 60n))],
    ["a header of 2^64 - 1", /header of/, () => read(fileOf("{}", 0, 2n ** 64n - 1n))],
    ["no JSON", /JSON/, () => read(fileOf('{"a":', 0))],
    ["an array", /begin with/, () => read(fileOf("[]", 0))],
    ["blanks first", /begin with/, () => read(fileOf(" {}", 0))],
    ["invalid UTF-8", /JSON/, () => read(Buffer.concat([fileOf("", 0, 4n), Buffer.from([0x7b, 0xff, 0xff, 0x7d])]))],
    ["deep nesting", /JSON|object/, () => read(fileOf(`{"a":${"[".repeat(200_000)}`, 0))],
    ["an entry that is a number", /not an object/, () => readHeader({ a: 5 }, 0)],
    ["an unknown dtype", /unknown dtype "F31"/, () => readHeader({ a: { ...f32(0, 4), dtype: "F31" } }, 4)],
    ["a dtype that is a number", /unknown dtype/, () => readHeader({ a: { ...f32(0, 4), dtype: 3 } }, 4)],
    ["a negative dimension", /impossible shape/, () => readHeader({ a: f32(0, 4, [-1]) }, 4)],
    ["a fractional dimension", /impossible shape/, () => readHeader({ a: f32(0, 4, [1.5]) }, 4)],
    ["a shape that overflows", /needs/, () => readHeader({ a: f32(0, 4, [2 ** 40, 2 ** 40]) }, 4)],
    ["offsets the wrong way round", /needs/, () => readHeader({ a: f32(4, 0, [1]) }, 4)],
    ["offsets that are texts", /data_offsets/, () => readHeader({ a: { ...f32(0, 4), data_offsets: ["0", "4"] } }, 4)],
    ["three offsets", /data_offsets/, () => readHeader({ a: { ...f32(0, 4), data_offsets: [0, 4, 8] } }, 4)],
    ["a size that does not match", /needs 8 bytes/, () => readHeader({ a: f32(0, 4, [2]) }, 4)],
    ["a tensor beyond the end", /ends at/, () => readHeader({ a: f32(0, 400) }, 4)],
    ["a hole", /begins where/, () => readHeader({ a: f32(0, 4), b: f32(8, 12) }, 12)],
    ["an overlap", /begins where/, () => readHeader({ a: f32(0, 8), b: f32(4, 12) }, 12)],
    ["bytes behind the last tensor", /ends at/, () => readHeader({ a: f32(0, 4) }, 8)],
  ])("%s", (_, message, action) => {
    const error = errorOf(action);
    expect(error.code).toBe("IX_MODEL_FORMAT");
    expect(error.message).toMatch(message);
    expect(error.message).toMatch(/byte/);
    expect(error.details.offset).toBeTypeOf("number");
  });
});

describe("shards", () => {
  const write = (map: unknown, shards: Record<string, Record<string, unknown>>): string => {
    const folder = mkdtempSync(join(root, "shards-"));
    for (const [name, header] of Object.entries(shards))
      writeFileSync(join(folder, name), fileOf(JSON.stringify(header), 4));
    writeFileSync(join(folder, "model.safetensors.index.json"), JSON.stringify({ weight_map: map }));
    return folder;
  };
  const shards = { "m-1.safetensors": { a: f32(0, 4) }, "m-2.safetensors": { b: f32(0, 4) } };

  test("are read together", () => {
    const { tensors, files } = readSafetensorsFolder(write({ a: "m-1.safetensors", b: "m-2.safetensors" }, shards));
    expect([tensors.get("a")!.file, tensors.get("b")!.file, files.length]).toEqual([0, 1, 2]);
  });

  test.each<[string, RegExp, unknown, Record<string, Record<string, unknown>>]>([
    ["a missing shard", /m-3.safetensors is missing/, { a: "m-3.safetensors" }, shards],
    ["a shard outside the folder", /not a file of this folder/, { a: "../m-1.safetensors" }, shards],
    ["an absolute path", /not a file of this folder/, { a: "/etc/passwd" }, shards],
    ["a backslash", /not a file of this folder/, { a: "..\\x" }, shards],
    ["a number", /not a file of this folder/, { a: 5 }, shards],
    ["a missing tensor", /tensor c is not in/, { a: "m-1.safetensors", c: "m-2.safetensors" }, shards],
    [
      "a tensor in two shards",
      /in two shards/,
      { a: "m-1.safetensors", b: "m-2.safetensors" },
      { ...shards, "m-2.safetensors": { a: f32(0, 4) } },
    ],
    ["no map", /weight_map is missing/, undefined, shards],
  ])("%s", (_, message, map, files) => {
    const error = errorOf(() => readSafetensorsFolder(write(map, files)));
    expect(error.code).toBe("IX_MODEL_FORMAT");
    expect(error.message).toMatch(message);
  });

  test("a folder without weights says what it has", () => {
    const folder = join(root, "empty");
    mkdirSync(folder);
    writeFileSync(join(folder, "pytorch_model.bin"), "");
    const error = errorOf(() => readSafetensorsFolder(folder));
    expect([error.code, error.message]).toEqual(["IX_FILE_NOT_FOUND", expect.stringContaining("pytorch_model.bin")]);
  });
});

test("mutated bytes parse or are refused as IX_MODEL_FORMAT, without large allocations", () => {
  const valid = fileOf(
    JSON.stringify({ __metadata__: { a: "b" }, x: f32(0, 16, [2, 2]), y: { ...f32(16, 20), dtype: "I32" } }),
    20,
  );
  const at = fc.nat(valid.byteLength - 1);
  const digits = fc.constantFrom("0", "9", "-", "[", "]", '"', "{", "}", ",", "99999999999999999999", "1e308", "null");
  const mutation = fc.oneof(
    fc.tuple(at, fc.integer({ min: 1, max: 255 })).map(([p, flip]) => (b: Buffer) => {
      if (p < b.byteLength) b[p]! ^= flip;
      return b;
    }),
    at.map((p) => (b: Buffer) => b.subarray(0, p)),
    fc.tuple(at, digits).map(
      ([p, more]) =>
        (b: Buffer) =>
          Buffer.concat([b.subarray(0, p), Buffer.from(more), b.subarray(p)]),
    ),
    fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }).map((length) => (b: Buffer) => {
      if (b.byteLength >= 8) b.writeBigUInt64LE(length);
      return b;
    }),
    fc.nat(valid.byteLength).map((length) => (b: Buffer) => {
      if (b.byteLength >= 8) b.writeBigUInt64LE(BigInt(length));
      return b;
    }),
  );
  const before = process.memoryUsage().rss;
  fc.assert(
    fc.property(fc.array(mutation, { minLength: 1, maxLength: 3 }), (mutations) => {
      let bytes: Buffer = Buffer.from(valid);
      for (const mutate of mutations) bytes = mutate(bytes);
      try {
        read(bytes);
      } catch (error) {
        expect(InferxError.is(error) && [error.code, typeof error.details.offset]).toEqual([
          "IX_MODEL_FORMAT",
          "number",
        ]);
      }
    }),
    { numRuns: 3000 },
  );
  expect(process.memoryUsage().rss - before).toBeLessThan(300 << 20);
});
