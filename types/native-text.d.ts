// The contract of the addon's text classes, written by hand. Token ids are int32. Every method throws an Error whose
// `code` is one of lib/base/errors.ts.

export interface NativeTokenizerConfig {
  bosToken?: string;
  eosToken?: string;
  /** Either given: both together replace what tokenizer.json puts around a text. */
  addBos?: boolean;
  addEos?: boolean;
}

/** A vocabulary without tokenizer.json; ids are indices into `tokens`. */
export interface NativeVocab {
  /** SentencePiece BPE, byte-level BPE, WordPiece, Unigram */
  model: "llama" | "gpt2" | "bert" | "t5";
  /** gpt2: name of the split patterns (tokenizer.ggml.pre) */
  pre?: string;
  tokens: readonly string[];
  /** llama, t5: one per token */
  scores?: Float32Array;
  /** One per token: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte */
  types?: Int32Array;
  /** gpt2: "left right" */
  merges?: readonly string[];
  /** bert: [CLS] */
  bos?: number;
  /** bert: [SEP] */
  eos?: number;
  unk?: number;
  addBos?: boolean;
  addEos?: boolean;
  addSpacePrefix?: boolean;
  removeExtraWhitespaces?: boolean;
  charsmap?: Uint8Array;
}

export type NativeTokenizerSpec =
  | { kind: "json"; json: string | Uint8Array; config?: NativeTokenizerConfig }
  | { kind: "sentencepiece"; model: Uint8Array; config?: NativeTokenizerConfig }
  | { kind: "vocab"; vocab: NativeVocab }
  /** One that another thread of the process holds, by `share()`. */
  | { handle: number };

export interface NativeTextSegment {
  text: string | Uint8Array;
  /** False: texts of control tokens stay text. */
  parseSpecial: boolean;
}

/** Immutable. */
export interface NativeTokenizer {
  /** Ids of the joined segments. */
  encode(segments: readonly NativeTextSegment[], addSpecial: boolean): Int32Array;
  /** The same on a thread of Node's pool. */
  encodeAsync(segments: readonly NativeTextSegment[], addSpecial: boolean): Promise<Int32Array>;
  decode(ids: Int32Array, options?: NativeStreamOptions): string;
  /** The exact bytes inside a text; none for an id beyond the vocabulary. */
  tokenBytes(id: number): Uint8Array;
  /** As spelled in the vocabulary. */
  tokenText(id: number): string;
  isSpecial(id: number): boolean;
  /** -1: no such token */
  find(text: string): number;
  /** The texts that `parseSpecial` is about. */
  controlTokens(): string[];
  /** Valid in all threads of the process while one of the tokenizer's objects lives. */
  share(): { handle: number };
  /** Largest id + 1 */
  readonly vocabSize: number;
  /** -1: none */
  readonly bos: number;
  readonly eos: number;
}

export interface NativeStreamOptions {
  stop?: readonly string[];
  /** The text keeps the stop string. Default false. */
  includeStop?: boolean;
  /** Special tokens appear in the text. Default false. */
  keepSpecial?: boolean;
  /** The ids continue a text: no leading space is stripped. Default false. */
  continuation?: boolean;
}

export interface NativeTextStream {
  /** Text that the tokens made final; after a stop string "". */
  push(ids: number | Int32Array): string;
  /** What was held back; the end. */
  flush(): string;
  /** Index of the stop string that was found, -1 before. */
  readonly stopIndex: number;
}

export interface NativeTextBinding {
  Tokenizer: new (spec: NativeTokenizerSpec) => NativeTokenizer;
  TextStream: new (tokenizer: NativeTokenizer, options?: NativeStreamOptions) => NativeTextStream;
}
