// Text of a sequence token by token: whole characters only, stop strings found across tokens. The pieces joined are
// the one-shot text. Not here: stop tokens, which belong to whoever draws tokens.
import type { NativeStreamOptions, NativeTextBinding, NativeTextStream } from "../../types/native-text.d.ts";
import { toInferxError } from "../base/errors.ts";
import type { Tokenizer } from "./tokenizer.ts";

export type TextStreamOptions = NativeStreamOptions;

export class TextStream {
  readonly #native: NativeTextStream;

  /** @throws IX_INVALID_ARGUMENT for an empty stop string, or more than 64 KiB of them */
  constructor(binding: NativeTextBinding, tokenizer: Tokenizer, options: TextStreamOptions = {}) {
    try {
      this.#native = new binding.TextStream(tokenizer.native, options);
    } catch (error) {
      throw toInferxError(error);
    }
  }

  /** The text that these tokens made final; "" after a stop string. @throws IX_INVALID_ARGUMENT for a negative id */
  push(ids: number | Int32Array): string {
    try {
      return this.#native.push(ids);
    } catch (error) {
      throw toInferxError(error);
    }
  }

  /** What was held back: an incomplete character, the beginning of a stop string. */
  flush(): string {
    return this.#native.flush();
  }

  /** Index of the stop string that was found, -1 before. */
  get stopIndex(): number {
    return this.#native.stopIndex;
  }
}
