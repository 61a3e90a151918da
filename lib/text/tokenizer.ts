// Token ids from text and back: the native tokenizer, loaded from what a checkpoint has (tokenizer.json, tokenizer.model
// or GGUF metadata). Not here: the rules of each file kind (tokenizer-source.ts), streams of tokens (stream.ts).
import type { NativeTextBinding, NativeTokenizer, NativeTokenizerSpec } from "../../types/native-text.d.ts";
import { toInferxError } from "../base/errors.ts";
import { ggufVocab, jsonConfig, sentencePieceConfig, type TokenizerFile } from "./tokenizer-source.ts";

export interface EncodeOptions {
  /** Add what the model expects around a text (begin-of-text, ...). Default true. */
  addSpecial?: boolean;
  /** Texts of special tokens, and of tokens that look like one, become them. Default false: right for users' text. */
  parseSpecial?: boolean;
}

export interface TextSegment {
  text: string;
  parseSpecial: boolean;
}

export interface DecodeOptions {
  /** Special tokens appear in the text. Default false. */
  keepSpecial?: boolean;
  /** The ids continue a text: a leading space is kept. Default false. */
  continuation?: boolean;
}

/** Immutable; safe to use while other threads use the same one (see `share`). */
export class Tokenizer {
  readonly native: NativeTokenizer;
  /** Largest token id + 1; a model's own vocabulary may be padded to more. */
  readonly vocabSize: number;
  readonly bosId: number | undefined;
  readonly eosId: number | undefined;
  #specialTokens: readonly string[] | undefined;

  private constructor(binding: NativeTextBinding, spec: NativeTokenizerSpec) {
    this.native = rethrown(() => new binding.Tokenizer(spec));
    this.vocabSize = this.native.vocabSize;
    this.bosId = this.native.bos < 0 ? undefined : this.native.bos;
    this.eosId = this.native.eos < 0 ? undefined : this.native.eos;
  }

  /** Texts that become a token only where `parseSpecial` is set; the same array every time. */
  get specialTokens(): readonly string[] {
    this.#specialTokens ??= this.native.controlTokens();
    return this.#specialTokens;
  }

  /** @throws IX_TOKENIZER when the files are damaged, contradictory or of a kind that is not supported. */
  static from(binding: NativeTextBinding, file: TokenizerFile): Tokenizer {
    if (file.kind === "gguf") return Tokenizer.fromGguf(binding, file.metadata);
    if (file.kind === "sentencepiece") return Tokenizer.fromSentencePiece(binding, file.bytes, file.config);
    return Tokenizer.fromJson(binding, file.text, file.config, file.specialTokensMap);
  }

  /** From tokenizer.json, with tokenizer_config.json and special_tokens_map.json where the checkpoint has them. */
  static fromJson(
    binding: NativeTextBinding,
    json: string | Uint8Array,
    config: Record<string, unknown> = {},
    specialTokensMap: Record<string, unknown> = {},
  ): Tokenizer {
    return new Tokenizer(binding, { kind: "json", json, config: jsonConfig(config, specialTokensMap) });
  }

  /** From the keys `tokenizer.ggml.*` of a GGUF file. */
  static fromGguf(binding: NativeTextBinding, metadata: ReadonlyMap<string, unknown>): Tokenizer {
    return new Tokenizer(binding, { kind: "vocab", vocab: ggufVocab(metadata) });
  }

  /** From a SentencePiece `tokenizer.model`. */
  static fromSentencePiece(
    binding: NativeTextBinding,
    model: Uint8Array,
    config: Record<string, unknown> = {},
  ): Tokenizer {
    return new Tokenizer(binding, { kind: "sentencepiece", model, config: sentencePieceConfig(config) });
  }

  /** The one that another thread of this process holds and has shared. */
  static fromShared(binding: NativeTextBinding, shared: { handle: number }): Tokenizer {
    return new Tokenizer(binding, shared);
  }

  encode(text: string, options: EncodeOptions = {}): Int32Array {
    return this.encodeSegments([{ text, parseSpecial: options.parseSpecial ?? false }], options.addSpecial ?? true);
  }

  /** `encode` on a pool thread. */
  encodeAsync(text: string, options: EncodeOptions = {}): Promise<Int32Array> {
    return this.encodeSegmentsAsync(
      [{ text, parseSpecial: options.parseSpecial ?? false }],
      options.addSpecial ?? true,
    );
  }

  /** Ids of the joined text; each part says whether special tokens may come out of it. Nothing is added around it by default. */
  encodeSegments(segments: readonly TextSegment[], addSpecial = false): Int32Array {
    return rethrown(() => this.native.encode(segments, addSpecial));
  }

  async encodeSegmentsAsync(segments: readonly TextSegment[], addSpecial = false): Promise<Int32Array> {
    try {
      return await this.native.encodeAsync(segments, addSpecial);
    } catch (error) {
      throw toInferxError(error);
    }
  }

  /** The whole text; invalid bytes are U+FFFD, as in TextDecoder. */
  decode(ids: Int32Array, options: DecodeOptions = {}): string {
    return rethrown(() => this.native.decode(ids, options));
  }

  /** The exact bytes that a token stands for inside a text, perhaps a part of a character; none beyond the vocabulary. */
  tokenBytes(id: number): Uint8Array {
    return rethrown(() => this.native.tokenBytes(id));
  }

  isSpecial(id: number): boolean {
    return rethrown(() => this.native.isSpecial(id));
  }

  /** Id of a token as spelled in the vocabulary. */
  find(text: string): number | undefined {
    const id = this.native.find(text);
    return id < 0 ? undefined : id;
  }

  /** For `Tokenizer.fromShared` in another thread of this process; valid while this object lives. */
  share(): { handle: number } {
    return this.native.share();
  }
}

function rethrown<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    throw toInferxError(error);
  }
}
