// Reads a file by offset and never past its end, and remembers which file it was.
// Not a mapping: a file that shrinks under a mapping is a SIGBUS, here it is IX_FILE_CHANGED.
import { type BigIntStats, closeSync, fstatSync, openSync, readSync, statSync } from "node:fs";
import { InferxError } from "../base/errors.ts";

/** A file as it was when its header was read; later stages compare before they trust offsets into it. */
export interface FileRef {
  path: string;
  sizeBytes: number;
  /** Device, inode and modification time: equal as long as it is the same file with the same contents. */
  identity: string;
}

/** What is at `path`. Errors: IX_FILE_NOT_FOUND, IX_FILE_READ. */
export function statPath(path: string): BigIntStats {
  try {
    return statSync(path, { bigint: true });
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code;
    if (code === "ENOENT" || code === "ENOTDIR") {
      throw new InferxError("IX_FILE_NOT_FOUND", `no such file: ${path}`, { path }, { cause });
    }
    throw new InferxError("IX_FILE_READ", `cannot read ${path}: ${(cause as Error).message}`, { path }, { cause });
  }
}

function toFileRef(path: string, stats: BigIntStats): FileRef {
  return { path, sizeBytes: Number(stats.size), identity: `${stats.dev}:${stats.ino}:${stats.size}:${stats.mtimeNs}` };
}

/** Throws IX_FILE_CHANGED when the file at `ref.path` is no longer the one that was opened. */
export function checkUnchanged(ref: FileRef): void {
  let now: string | undefined;
  try {
    now = toFileRef(ref.path, statPath(ref.path)).identity;
  } catch (cause) {
    throw new InferxError("IX_FILE_CHANGED", `${ref.path} is gone`, { path: ref.path }, { cause });
  }
  if (now !== ref.identity) {
    const details = { path: ref.path, opened: ref.identity, now };
    throw new InferxError("IX_FILE_CHANGED", `${ref.path} was replaced or changed after it was opened`, details);
  }
}

/** An open file with bounds. Close it, or let `using` do so. */
export class BoundedReader {
  readonly file: FileRef;
  readonly #descriptor: number;

  /** Errors: IX_FILE_NOT_FOUND, IX_FILE_READ, IX_MODEL_FORMAT when it is not a regular file. */
  constructor(path: string) {
    // Looked at before it is opened: opening a FIFO would wait for its writer.
    if (!statPath(path).isFile()) throw new InferxError("IX_MODEL_FORMAT", `${path} is not a regular file`, { path });
    try {
      this.#descriptor = openSync(path, "r");
    } catch (cause) {
      throw new InferxError("IX_FILE_READ", `cannot open ${path}: ${(cause as Error).message}`, { path }, { cause });
    }
    this.file = toFileRef(path, fstatSync(this.#descriptor, { bigint: true }));
  }

  /** Exactly `byteLength` bytes from `offset`; IX_MODEL_FORMAT when the file ends before, without allocating them. */
  readAt(offset: number, byteLength: number): Buffer {
    const { path, sizeBytes } = this.file;
    if (!(offset >= 0 && byteLength >= 0 && offset + byteLength <= sizeBytes)) {
      const message = `${path} ends at byte ${sizeBytes}, but bytes ${offset} to ${offset + byteLength} are needed`;
      throw new InferxError("IX_MODEL_FORMAT", message, { path, offset, byteLength, sizeBytes });
    }
    const bytes = Buffer.allocUnsafe(byteLength);
    for (let done = 0; done < byteLength; ) {
      const count = readSync(this.#descriptor, bytes, done, byteLength - done, offset + done);
      if (count === 0) {
        throw new InferxError("IX_FILE_CHANGED", `${path} was truncated while it was read`, {
          path,
          offset: offset + done,
        });
      }
      done += count;
    }
    return bytes;
  }

  close(): void {
    closeSync(this.#descriptor);
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
