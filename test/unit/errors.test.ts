// Error codes: one table in lib/base/errors.ts, from which both languages take theirs.
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { errorAdvice, fromErrorData, InferxError, toInferxError } from "../../lib/base/errors.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** Every IX_… string literal of the sources below `folder`, with the file that has it. */
function codesIn(folder: string, extension: RegExp): Map<string, string> {
  const codes = new Map<string, string>();
  for (const entry of readdirSync(path.join(root, folder), { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || !extension.test(entry.name)) continue;
    const file = path.join(entry.parentPath, entry.name);
    for (const [, code] of readFileSync(file, "utf8").matchAll(/"(IX_[A-Z_]+)"/g))
      codes.set(code!, path.relative(root, file));
  }
  return codes;
}

test.each([
  ["csrc", /\.(h|cpp|cc|cu|cuh)$/],
  ["lib", /\.ts$/],
])("every code that %s throws is in the table", (folder, extension) => {
  const codes = codesIn(folder, extension);
  expect(codes.size).toBeGreaterThan(0);
  const unknown = [...codes].filter(([code]) => !(code in errorAdvice)).map(([code, file]) => `${code} in ${file}`);
  expect(unknown).toEqual([]);
});

test.each(Object.entries(errorAdvice))("%s has advice of one sentence", (code, advice) => {
  expect(code).toMatch(/^IX_[A-Z]+(_[A-Z]+)*$/);
  expect(advice).toMatch(/^[A-Z`].*\.$/);
});

test("an error survives the way between threads", () => {
  const sent = structuredClone(new InferxError("IX_KV_EXHAUSTED", "needs 9 blocks", { blocks: 9 }).toJSON());
  const error = fromErrorData(sent);
  expect(InferxError.is(error)).toBe(true);
  expect(error).toBeInstanceOf(InferxError);
  expect(error.code).toBe("IX_KV_EXHAUSTED");
  expect(error.details).toEqual({ blocks: 9 });
  expect(error.advice).toBe(errorAdvice.IX_KV_EXHAUSTED);
});

test("errors of the native side keep their code, foreign ones become IX_INTERNAL", () => {
  const native = Object.assign(new Error("offset 12 is past the end"), { code: "IX_MODEL_FORMAT" });
  expect(toInferxError(native).code).toBe("IX_MODEL_FORMAT");
  expect(toInferxError(Object.assign(new Error("no such file"), { code: "ENOENT" })).code).toBe("IX_INTERNAL");
  expect(toInferxError("text").message).toBe("text");
  const own = new InferxError("IX_ABORTED", "stopped");
  expect(toInferxError(own)).toBe(own);
});
