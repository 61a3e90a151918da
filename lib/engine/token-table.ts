// Bytes and text of single tokens, as results show them; each is looked up once.
import type { Tokenizer } from "../text/tokenizer.ts";

const replacing = new TextDecoder();

export class TokenTable {
  readonly #tokenizer: Tokenizer | undefined;
  readonly #bytes = new Map<number, Uint8Array>();

  /** Without a tokenizer every token is empty. */
  constructor(tokenizer: Tokenizer | undefined) {
    this.#tokenizer = tokenizer;
  }

  /** Shared: not to be written into. */
  bytes(id: number): Uint8Array {
    let bytes = this.#bytes.get(id);
    if (!bytes) {
      bytes = this.#tokenizer?.tokenBytes(id) ?? new Uint8Array(0);
      this.#bytes.set(id, bytes);
    }
    return bytes;
  }

  /** U+FFFD where the token is a part of a character. */
  text(id: number): string {
    return replacing.decode(this.bytes(id));
  }
}
