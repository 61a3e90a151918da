// What the commands write besides their answers: errors, the loading bar, dim remarks. All of it goes to stderr.
import { InferxError } from "../base/errors.ts";
import type { LoadProgress } from "../index.ts";
import { LoadError } from "./exit-codes.ts";

/** `inferx: <message>`, what to do, and the code. The stack only with INFERX_DEBUG=1: it says nothing to a user. */
export function reportError(error: unknown): void {
  const reason = error instanceof LoadError ? error.cause : error;
  const lines = [`inferx: ${reason instanceof Error ? reason.message : String(reason)}`];
  if (InferxError.is(reason)) lines.push(`  ${reason.advice} [${reason.code}]`);
  if (process.env.INFERX_DEBUG === "1" && reason instanceof Error) lines.push(reason.stack ?? "");
  process.stderr.write(`${lines.join("\n")}\n`);
}

/** `inferx run … | head -1` closes our stdout: that is a normal end, not a failure. */
export function endQuietlyOnClosedPipe(): void {
  for (const stream of [process.stdout, process.stderr]) {
    stream.on("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "EPIPE") process.exit(0);
      throw error;
    });
  }
}

/** A remark for people, not for programs: nothing when stderr is not a terminal. */
export function remark(text: string): void {
  if (process.stderr.isTTY) process.stderr.write(process.env.NO_COLOR ? `${text}\n` : `\x1b[2m${text}\x1b[0m\n`);
}

export interface ProgressBar {
  update(progress: LoadProgress): void;
  clear(): void;
}

/** One line that is redrawn in place and wiped at the end; silent when stderr is not a terminal. */
export function progressBar(): ProgressBar {
  const stream = process.stderr;
  if (!stream.isTTY) return { update() {}, clear() {} };
  const width = 30;
  return {
    update({ phase, loadedBytes, totalBytes }) {
      const share = totalBytes > 0 ? Math.min(1, loadedBytes / totalBytes) : 0;
      const filled = Math.round(share * width);
      const bytes = totalBytes > 0 ? ` ${formatBytes(loadedBytes)} of ${formatBytes(totalBytes)}` : "";
      stream.write(`\r\x1b[K${phase.padEnd(8)}[${"#".repeat(filled)}${"-".repeat(width - filled)}]${bytes}`);
    },
    clear: () => void stream.write("\r\x1b[K"),
  };
}

export function formatBytes(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 || value >= 100 ? value.toFixed(0) : value.toFixed(1)} ${units[unit]}`;
}
