// Checks of our own reasoning (not of user input): a failure is a bug and says so.
import { InferxError } from "./errors.ts";

/** Throws IX_INTERNAL when `condition` does not hold. */
export function invariant(condition: unknown, message: string): asserts condition {
  if (!condition) throw new InferxError("IX_INTERNAL", `invariant violated: ${message}`);
}

/** For the default branch of an exhaustive switch. */
export function unreachable(value: never): never {
  throw new InferxError("IX_INTERNAL", `unreachable case: ${String(value)}`);
}
