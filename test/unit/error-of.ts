// What refused input throws.
import { InferxError } from "../../lib/base/errors.ts";

/** The InferxError that `action` throws; anything else that it throws, or nothing, fails the test. */
export function errorOf(action: () => unknown): InferxError {
  try {
    action();
  } catch (error) {
    if (InferxError.is(error)) return error;
    throw error;
  }
  throw new Error("nothing was thrown");
}
