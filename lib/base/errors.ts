// Every error that inferx throws: one class, one table of stable codes, each with what to do next.
// Not here: what went wrong in a given case; that is the message of the throwing place.

/** Stable error codes and the advice that belongs to each. C++ throws the same codes (checked in test/unit/errors.test.ts). */
export const errorAdvice = {
  IX_INVALID_ARGUMENT: "Check the argument named in the message.",
  IX_INTERNAL: "This is a bug in inferx; please report it with the message.",
  IX_ABORTED: "The caller cancelled the operation.",
  IX_DISPOSED: "The object was disposed; load or create it again.",
  IX_NATIVE_MISSING: "Run `npm rebuild inferx` (needs cmake and a C++20 compiler), or `npx inferx doctor`.",
  IX_NATIVE_MISMATCH: "The addon and the JavaScript come from different builds; run `npm rebuild inferx`.",
  IX_FILE_NOT_FOUND:
    "Check the path; a model is a folder with config.json, a .gguf file, or nothing for the bundled model.",
  IX_FILE_READ: "The file could not be read; check permissions and the disk.",
  IX_FILE_CHANGED: "The file changed while it was in use; load the model again.",
  IX_MODEL_FORMAT: "The model file is damaged or not in the format its name says; download or convert it again.",
  IX_MODEL_CONFIG:
    "The model's configuration is incomplete or contradictory; compare config.json with the publisher's.",
  IX_UNSUPPORTED_ARCHITECTURE: "Register the architecture with `architecture()`, or see docs/adding/model.md.",
  IX_UNSUPPORTED_FORMAT: "Convert the weights to a supported format (see the README's table).",
  IX_TOKENIZER: "The tokenizer's file is incomplete or of an unknown kind; see the README's table.",
  IX_TEMPLATE: "The chat template refused these messages; see the message, or pass another template.",
  IX_CONTEXT_OVERFLOW: "Shorten the prompt, lower maxTokens, or load the model with a larger contextLength.",
  IX_KV_EXHAUSTED: "The request needs more KV blocks than the cache has; raise `cache.bytes` or shorten the request.",
  IX_QUEUE_FULL: "Too many requests are waiting; retry later or raise `maxQueuedRequests`.",
  IX_OUT_OF_MEMORY: "Choose a smaller model, format or cache; `Model.plan()` tells what is needed.",
  IX_NO_DEVICE: "Run `npx inferx doctor` to see which devices were found and what is missing.",
  IX_DEVICE: "The device reported an error; load the model again.",
  IX_NO_KERNEL: "The backend lacks a kernel for this operation; list it in `fallbackOps` or choose another backend.",
  IX_PLAN: "The plan failed verification; this is a bug in inferx unless the plan was made by hand.",
  IX_WORKER_DIED: "The engine's worker thread ended unexpectedly; load the model again.",
} as const;

export type ErrorCode = keyof typeof errorAdvice;

const brand = Symbol.for("inferx.error");

/** What crosses thread borders in place of an error. */
export interface ErrorData {
  code: ErrorCode;
  message: string;
  details?: Record<string, unknown>;
}

/**
 * The only error type that inferx throws on purpose.
 * `code` is stable across releases; `advice` says what to do; `details` holds figures (offsets, limits, sizes).
 */
export class InferxError extends Error {
  readonly code: ErrorCode;
  readonly details: Record<string, unknown>;
  readonly [brand] = true;

  constructor(code: ErrorCode, message: string, details: Record<string, unknown> = {}, options?: ErrorOptions) {
    super(message, options);
    this.name = "InferxError";
    this.code = code;
    this.details = details;
  }

  /** What to do about it, one sentence. */
  get advice(): string {
    return errorAdvice[this.code];
  }

  /** True for an InferxError of this or of another copy of the package. */
  static is(value: unknown): value is InferxError {
    return typeof value === "object" && value !== null && brand in value;
  }

  toJSON(): ErrorData {
    return { code: this.code, message: this.message, details: this.details };
  }
}

/** Turns anything thrown into an InferxError; native errors carry their code in `code`. */
export function toInferxError(error: unknown): InferxError {
  if (InferxError.is(error)) return error;
  if (error instanceof Error) {
    const code = (error as { code?: unknown }).code;
    if (typeof code === "string" && code in errorAdvice) {
      return new InferxError(code as ErrorCode, error.message, {}, { cause: error });
    }
    return new InferxError("IX_INTERNAL", error.message, {}, { cause: error });
  }
  return new InferxError("IX_INTERNAL", String(error));
}

/** Rebuilds an error that another thread sent as data. */
export function fromErrorData(data: ErrorData): InferxError {
  return new InferxError(data.code, data.message, data.details ?? {});
}
