// The small files beside the weights, read whole under a bound: JSON, text, tokenizer models.
// Not for weights: those are read by offset (bounded-reader.ts).
import { readdirSync } from "node:fs";
import { InferxError } from "../base/errors.ts";
import { BoundedReader, statPath } from "./bounded-reader.ts";

/** Names in a folder. Errors: IX_FILE_NOT_FOUND, IX_FILE_READ. */
export function listFolder(folder: string): string[] {
  statPath(folder);
  try {
    return readdirSync(folder);
  } catch (cause) {
    throw new InferxError(
      "IX_FILE_READ",
      `cannot list ${folder}: ${(cause as Error).message}`,
      { path: folder },
      { cause },
    );
  }
}

/** Reads a whole small file as text (UTF-8, strictly). Errors: IX_FILE_NOT_FOUND, IX_MODEL_FORMAT when over `maxBytes` or not UTF-8. */
export function readTextFile(path: string, maxBytes: number): string {
  const bytes = readSmallFile(path, maxBytes);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new InferxError("IX_MODEL_FORMAT", `${path} is not UTF-8 text`, { path }, { cause });
  }
}

/** Reads a whole small file. Errors: IX_FILE_NOT_FOUND, IX_MODEL_FORMAT when it is over `maxBytes`. */
export function readSmallFile(path: string, maxBytes: number): Buffer {
  const reader = new BoundedReader(path);
  try {
    const { sizeBytes } = reader.file;
    if (sizeBytes > maxBytes) {
      throw new InferxError("IX_MODEL_FORMAT", `${path} has ${sizeBytes} bytes, more than ${maxBytes}`, {
        path,
        sizeBytes,
      });
    }
    return reader.readAt(0, sizeBytes);
  } finally {
    reader.close();
  }
}

/** Parses a small JSON file that must hold an object. Errors: IX_FILE_NOT_FOUND, IX_MODEL_FORMAT. */
export function readJsonFile(path: string, maxBytes: number): Record<string, unknown> {
  return parseJsonObject(readTextFile(path, maxBytes), path);
}

/** Parses JSON that must be an object; `name` stands in the message of IX_MODEL_FORMAT. */
export function parseJsonObject(text: string, name: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new InferxError("IX_MODEL_FORMAT", `${name} is not JSON: ${(cause as Error).message}`, { name }, { cause });
  }
  if (!isRecord(value)) throw new InferxError("IX_MODEL_FORMAT", `${name} must hold a JSON object`, { name });
  return value;
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
