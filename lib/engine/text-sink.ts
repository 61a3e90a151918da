// Makes the text of one request's tokens in the engine's thread, from a tokenizer that the caller's thread has loaded.
import type { NativeTextBinding } from "../../types/native-text.d.ts";
import { TextStream } from "../text/stream.ts";
import { Tokenizer } from "../text/tokenizer.ts";
import type { RequestSpec } from "./protocol.ts";
import type { TextSink } from "./request.ts";

/** Names a loaded tokenizer to another thread of this process. */
export interface SharedTokenizer {
  handle: number;
}

/** Without a tokenizer there is no text, only tokens. */
const silent: TextSink = { push: () => "", flush: () => "", stopIndex: -1 };

export function createTextSinks(
  binding: NativeTextBinding,
  shared: SharedTokenizer | undefined,
): (spec: RequestSpec) => TextSink {
  if (!shared) return () => silent;
  const tokenizer = Tokenizer.fromShared(binding, shared);
  return (spec) =>
    new TextStream(binding, tokenizer, { stop: [...spec.stop], keepSpecial: spec.keepSpecial, continuation: true });
}
