// Damaged and malicious tokenizer files: a typed error or a working tokenizer, never a crash, soon.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Tokenizer } from "../../lib/text/tokenizer.ts";
import { fixtureJson, goldenTokenizer, loadBinding, tinyNames } from "./tokenizer-binding.ts";

const binding = loadBinding();
const refused = expect.objectContaining({ code: "IX_TOKENIZER" });
const bpe = (model: object, rest: object = {}): string =>
  JSON.stringify({ model: { type: "BPE", vocab: { a: 0, b: 1 }, merges: [], ...model }, ...rest });

const broken: Record<string, string> = {
  empty: "",
  "not JSON": "hello",
  "no model": "{}",
  "model of the wrong type": '{"model":5}',
  "vocab of the wrong type": bpe({ vocab: "x" }),
  "a negative id": bpe({ vocab: { a: -1 } }),
  "an id of 2^31": bpe({ vocab: { a: 2 ** 31 } }),
  "an id of 1e300": '{"model":{"type":"BPE","vocab":{"a":1e300},"merges":[]}}',
  "an id beyond every double": '{"model":{"type":"BPE","vocab":{"a":1e999},"merges":[]}}',
  "a fractional id": bpe({ vocab: { a: 0.5 } }),
  "a merge of unknown parts": bpe({ merges: ["a c"] }),
  "a merge without result": bpe({ merges: ["a b"] }),
  "a merge of three": bpe({ merges: [["a", "b", "c"]] }),
  "a merge without space": bpe({ merges: ["ab"] }),
  "merges that are a number": bpe({ merges: 3 }),
  "an unknown token that is missing": bpe({ unk_token: "<unk>" }),
  "an unknown model": bpe({ type: "Magic" }),
  "an unknown normalizer": bpe({}, { normalizer: { type: "Magic" } }),
  "an unknown pre-tokenizer": bpe({}, { pre_tokenizer: { type: "Magic" } }),
  "an unknown decoder": bpe({}, { decoder: { type: "Magic" } }),
  "an unknown post-processor": bpe({}, { post_processor: { type: "Magic" } }),
  "a bad pattern": bpe({}, { pre_tokenizer: { type: "Split", pattern: { Regex: "(" }, behavior: "Isolated" } }),
  "an empty literal": bpe({}, { pre_tokenizer: { type: "Split", pattern: { String: "" }, behavior: "Isolated" } }),
  "an empty Replace": bpe({}, { normalizer: { type: "Replace", pattern: { String: "" }, content: "x" } }),
  "an empty Metaspace": bpe({}, { decoder: { type: "Metaspace", replacement: "" } }),
  "a bad character map": bpe({}, { normalizer: { type: "Precompiled", precompiled_charsmap: "AAAA" } }),
  "character map that is not base64": bpe({}, { normalizer: { type: "Precompiled", precompiled_charsmap: "!!" } }),
  "added token without id": bpe({}, { added_tokens: [{ content: "x" }] }),
  "added token with a huge id": bpe({}, { added_tokens: [{ content: "x", id: 4294967295 }] }),
  "a template with an unknown token": bpe(
    {},
    { post_processor: { type: "TemplateProcessing", single: [{ SpecialToken: { id: "x" } }] } },
  ),
  "Unigram scores that are text": JSON.stringify({ model: { type: "Unigram", vocab: [["a", "b"]] } }),
  "an unk_id outside": JSON.stringify({ model: { type: "Unigram", vocab: [["a", 0]], unk_id: 7 } }),
  "WordPiece without unknown": JSON.stringify({ model: { type: "WordPiece", vocab: { a: 0 } } }),
  "deep arrays": "[".repeat(1_000_000),
  "deep objects": '{"a":'.repeat(1_000_000),
  "deep sequences": bpe({}, { normalizer: nested(60) }),
  "a control character in a string": '{"model":"\u0001"}',
  "a bad escape": '{"model":"\\q"}',
  "a leading zero": '{"model":01}',
  "two documents": "{} {}",
};

function nested(depth: number): object {
  return depth === 0 ? { type: "NFC" } : { type: "Sequence", normalizers: [nested(depth - 1)] };
}

describe("tokenizer.json", () => {
  test.each(Object.entries(broken))("%s is refused", (_, json) => {
    expect(() => Tokenizer.fromJson(binding, json)).toThrow(refused);
  });

  test("merges that produce one another still end", () => {
    const json = bpe({ vocab: { a: 0, aa: 1, aaa: 2, aaaa: 3 }, merges: ["a a", "aa a", "a aa", "aa aa", "aaa a"] });
    const tokenizer = Tokenizer.fromJson(binding, json);
    expect([...tokenizer.encode("a".repeat(1000))].every((id) => id < 4)).toBe(true);
  });

  test.each(tinyNames)("%s cut short or with changed bytes", (name) => {
    const bytes = Buffer.from(fixtureJson(name));
    fc.assert(
      fc.property(fc.nat(bytes.length - 2), (length) => {
        expect(() => Tokenizer.fromJson(binding, bytes.subarray(0, length))).toThrow(refused);
      }),
      { numRuns: 30 },
    );
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat(bytes.length - 1), fc.nat(255)), { minLength: 1, maxLength: 4 }),
        (changes) => {
          const changed = Buffer.from(bytes);
          for (const [at, value] of changes) changed[at] = value;
          let tokenizer: Tokenizer;
          try {
            tokenizer = Tokenizer.fromJson(binding, changed);
          } catch (error) {
            expect(error).toMatchObject({ code: "IX_TOKENIZER" });
            return;
          }
          const ids = tokenizer.encode("The quick brown fox, 123 日本 😀\n", { parseSpecial: true });
          expect(ids.every((id) => id >= 0 && id < tokenizer.vocabSize)).toBe(true);
          expect(typeof tokenizer.decode(ids)).toBe("string");
        },
      ),
      { numRuns: 60 },
    );
  });
});

describe("tokenizer.model", () => {
  test("random bytes are refused or empty", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        expect(() => Tokenizer.fromSentencePiece(binding, bytes)).toThrow(refused);
      }),
    );
  });

  test("a piece that claims more bytes than there are", () => {
    expect(() => Tokenizer.fromSentencePiece(binding, Uint8Array.of(0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x41))).toThrow(
      refused,
    );
  });
});

describe("GGUF metadata", () => {
  const keys = (entries: Record<string, unknown>): Map<string, unknown> =>
    new Map(Object.entries(entries).map(([key, value]) => [`tokenizer.ggml.${key}`, value]));
  const gpt2 = { model: "gpt2", tokens: ["a", "b", "ab"], merges: ["a b"], pre: "gpt-2" };

  test("a byte-level vocabulary", () => {
    const tokenizer = Tokenizer.fromGguf(binding, keys(gpt2));
    expect([...tokenizer.encode("abba")]).toEqual([2, 1, 0]);
  });

  test.each([
    ["no kind", {}],
    ["an unknown kind", { ...gpt2, model: "rwkv" }],
    ["an unknown pattern name", { ...gpt2, pre: "nope" }],
    ["tokens of the wrong type", { ...gpt2, tokens: [1, 2] }],
    ["too few types", { ...gpt2, token_type: Int32Array.of(1) }],
    ["an id outside", { ...gpt2, bos_token_id: 9 }],
    ["a merge without space", { ...gpt2, merges: ["ab"] }],
    ["no scores", { model: "llama", tokens: ["a"] }],
    ["too few scores", { model: "llama", tokens: ["a", "b"], scores: Float32Array.of(1) }],
    ["a score that is not a number", { model: "llama", tokens: ["a"], scores: Float32Array.of(Number.NaN) }],
    ["no tokens", { model: "llama", tokens: [], scores: new Float32Array(0) }],
    ["flags that are text", { ...gpt2, add_bos_token: "yes" }],
  ])("%s is refused", (_, entries) => {
    expect(() => Tokenizer.fromGguf(binding, keys(entries))).toThrow(refused);
  });

  test("a SentencePiece vocabulary gives the ids of its tokenizer.json", () => {
    const json = JSON.parse(fixtureJson("tiny_sp_bpe")) as {
      model: { vocab: Record<string, number>; merges: string[][] };
    };
    const tokens = Object.entries(json.model.vocab)
      .sort((a, b) => a[1] - b[1])
      .map(([text]) => text);
    const scores = new Float32Array(tokens.length).fill(-1e6);
    json.model.merges.forEach((merge, rank) => {
      const id = json.model.vocab[merge.join("")]!;
      scores[id] = Math.max(scores[id]!, -rank);
    });
    const types = Int32Array.from(tokens, (text, id) => (id === 0 ? 2 : id < 3 ? 3 : /^<0x..>$/.test(text) ? 6 : 1));
    const tokenizer = Tokenizer.fromGguf(
      binding,
      keys({ model: "llama", tokens, scores, token_type: types, bos_token_id: 1, eos_token_id: 2 }),
    );
    const reference = goldenTokenizer(binding, "tiny_sp_bpe")!;
    for (const text of ["", " ", "hello world", "The quick  brown fox", "日本語 😀", "a<s>b"]) {
      expect([...tokenizer.encode(text)]).toEqual([...reference.encode(text)]);
      expect(tokenizer.decode(tokenizer.encode(text))).toBe(text);
    }
  });
});
