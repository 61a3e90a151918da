// What the exit codes of `inferx` mean, and the error that carries one.
import { InferxError } from "../base/errors.ts";

export const exitCodes = {
  ok: 0,
  /** Something failed at run time. */
  failure: 1,
  /** The command line was wrong. */
  usage: 2,
  /** The model could not be loaded. */
  load: 3,
  /** Ctrl-C. */
  interrupted: 130,
} as const;

export const exitCodesText = `Exit codes:
  0    ok
  1    failed at run time
  2    wrong command line or option
  3    the model could not be loaded
  130  interrupted (Ctrl-C)`;

/** Loading failed; `cause` says why. */
export class LoadError extends Error {
  override readonly cause: unknown;
  constructor(cause: unknown) {
    super("the model could not be loaded", { cause });
    this.cause = cause;
  }
}

export function exitCodeOf(error: unknown): number {
  const load = error instanceof LoadError;
  const reason = load ? error.cause : error;
  if (InferxError.is(reason)) {
    if (reason.code === "IX_ABORTED") return exitCodes.interrupted;
    if (reason.code === "IX_INVALID_ARGUMENT") return exitCodes.usage;
  }
  return load ? exitCodes.load : exitCodes.failure;
}
