// The tokenizer against golden lines of the reference implementations, and the rules that they do not show.
import { describe, expect, test } from "vitest";
import { Tokenizer } from "../../lib/text/tokenizer.ts";
import { jsonConfig } from "../../lib/text/tokenizer-source.ts";
import {
  fixtureJson,
  goldenLines,
  goldenTokenizer,
  loadBinding,
  publishedNames,
  sentencePieceNames,
  tinyNames,
} from "./tokenizer-binding.ts";

const binding = loadBinding();

describe("golden", () => {
  for (const name of [...tinyNames, ...publishedNames, ...sentencePieceNames]) {
    const lines = goldenLines(name);
    const tokenizer = lines && goldenTokenizer(binding, name);
    if (!lines || !tokenizer) {
      test.skip(`${name}: SKIPPED, its golden lines or its tokenizer file are not on this machine`, () => {});
      continue;
    }
    test(`${name}: ids and texts of ${lines.length} lines`, () => {
      expect(lines.length).toBeGreaterThan(300);
      for (const line of lines) {
        const decoded = tokenizer.decode(Int32Array.from(line.ids));
        if (name === "mistral_v1_sentencepiece") {
          // The library itself: no special tokens, neither added nor parsed.
          expect([line.text, ...tokenizer.encode(line.text, { addSpecial: false })]).toEqual([line.text, ...line.ids]);
        } else {
          const plain = tokenizer.encode(line.text, { addSpecial: false, parseSpecial: true });
          expect([line.text, ...tokenizer.encode(line.text, { parseSpecial: true })]).toEqual([line.text, ...line.ids]);
          expect([line.text, ...plain]).toEqual([line.text, ...line.ids_no_special]);
          expect(tokenizer.decode(Int32Array.from(line.ids_no_special), { keepSpecial: true })).toBe(line.decoded_keep);
        }
        expect(decoded).toBe(line.decoded);
      }
    });
  }
});

describe("special tokens", () => {
  const llama = Tokenizer.fromJson(binding, fixtureJson("tiny_bytelevel_llama"));
  const start = llama.find("<|im_start|>")!;

  test("come out of text only where it is allowed", () => {
    const text = "a<|im_start|>b";
    expect([...llama.encode(text, { parseSpecial: true })]).toContain(start);
    const plain = llama.encode(text);
    expect([...plain]).not.toContain(start);
    expect(llama.decode(plain)).toBe(text);
  });

  test("are parsed per segment, and a token never joins two segments of different kinds", () => {
    const segments = [
      { text: "<|im_start|>user\n", parseSpecial: true },
      { text: "<|im_start|>", parseSpecial: false },
      { text: "<|im_", parseSpecial: false },
      { text: "start|>", parseSpecial: true },
    ];
    const ids = [...llama.encodeSegments(segments)];
    expect(ids.filter((id) => id === start)).toEqual([start]);
    expect(ids[0]).toBe(start);
    expect(llama.decode(Int32Array.from(ids), { keepSpecial: true })).toBe(segments.map((s) => s.text).join(""));
  });

  test("segments without special texts give the ids of the joined text", () => {
    const whole = llama.encode("hello world 123", { addSpecial: false });
    const parts = ["hel", "lo wor", "ld 12", "3"].map((text, i) => ({ text, parseSpecial: i % 2 === 0 }));
    expect([...llama.encodeSegments(parts)]).toEqual([...whole]);
  });

  test("look-alikes count as special for parsing even when the file does not say so", () => {
    const deepseek = goldenTokenizer(binding, "deepseek_v3");
    if (!deepseek) return console.warn("SKIPPED: the deepseek_v3 tokenizer is not on this machine");
    const user = deepseek.find("<｜User｜>")!;
    expect([...deepseek.encode("<｜User｜>hi", { parseSpecial: true })]).toContain(user);
    expect([...deepseek.encode("<｜User｜>hi")]).not.toContain(user);
    expect(deepseek.isSpecial(user)).toBe(false);
  });
});

describe("tokenizer_config.json", () => {
  test("add_bos_token rules for the Llama and Gemma classes only", () => {
    const config = { bos_token: { content: "<s>" }, eos_token: "</s>", add_bos_token: false, add_eos_token: true };
    expect(jsonConfig({ ...config, tokenizer_class: "LlamaTokenizerFast" }, {})).toEqual({
      bosToken: "<s>",
      eosToken: "</s>",
      addBos: false,
      addEos: true,
    });
    expect(jsonConfig({ ...config, tokenizer_class: "PreTrainedTokenizerFast" }, {})).toEqual({
      bosToken: "<s>",
      eosToken: "</s>",
    });
  });

  test("replaces the template of tokenizer.json", () => {
    const json = fixtureJson("tiny_sp_bpe");
    const base = Tokenizer.fromJson(binding, json);
    const config = { bos_token: "<s>", eos_token: "</s>", tokenizer_class: "LlamaTokenizer" };
    const both = Tokenizer.fromJson(binding, json, { ...config, add_bos_token: true, add_eos_token: true });
    const none = Tokenizer.fromJson(binding, json, { ...config, add_bos_token: false });
    const ids = [...base.encode("hello", { addSpecial: false })];
    expect([...both.encode("hello")]).toEqual([both.bosId, ...ids, both.eosId]);
    expect([...none.encode("hello")]).toEqual(ids);
    expect([both.bosId, both.eosId]).toEqual([base.find("<s>"), base.find("</s>")]);
  });

  test("refuses a begin-of-text token that is not in the vocabulary", () => {
    expect(() => Tokenizer.fromJson(binding, fixtureJson("tiny_sp_bpe"), { bos_token: "<nope>" })).toThrow(
      expect.objectContaining({ code: "IX_TOKENIZER" }),
    );
  });
});

describe("encode", () => {
  const llama = Tokenizer.fromJson(binding, fixtureJson("tiny_bytelevel_llama"));

  test("on the pool gives the same ids, many at once", async () => {
    const texts = Array.from({ length: 50 }, (_, i) => `text ${i} ${"wörld ".repeat(i)}`);
    const all = await Promise.all(texts.map((text) => llama.encodeAsync(text)));
    expect(all.map((ids) => [...ids])).toEqual(texts.map((text) => [...llama.encode(text)]));
  });

  test("reads lone surrogates and invalid UTF-8 as U+FFFD", () => {
    expect([...llama.encode("a\ud800b")]).toEqual([...llama.encode("a\ufffdb")]);
    const bytes = Uint8Array.of(0x61, 0xe4, 0xbd, 0x62, 0xff);
    const text = new TextDecoder().decode(bytes);
    expect([...llama.native.encode([{ text: bytes, parseSpecial: false }], true)]).toEqual([...llama.encode(text)]);
  });

  test("stays exact on long runs", () => {
    for (const unit of ["a", "日", " ", "\n", "ab1 "]) {
      const text = unit.repeat(65536);
      expect(llama.decode(llama.encode(text))).toBe(text);
    }
  });

  test("another object of the process opens a shared tokenizer, as long as it lives", () => {
    const other = new binding.Tokenizer(llama.share());
    expect([...other.encode([{ text: "hello", parseSpecial: false }], true)]).toEqual([...llama.encode("hello")]);
    expect(llama.share()).toEqual(llama.share());
    expect(() => new binding.Tokenizer({ handle: 1e6 })).toThrow(expect.objectContaining({ code: "IX_DISPOSED" }));
  });

  test("refuses arguments of the wrong type", () => {
    const native = llama.native as unknown as Record<string, (...args: unknown[]) => unknown>;
    for (const call of [
      () => native.encode!("text", true),
      () => native.encode!([{ text: 5, parseSpecial: true }], true),
      () => native.encode!([{ text: "a" }], true),
      () => native.decode!([1, 2]),
      () => native.decode!(new Float32Array(2)),
      () => native.decode!(Int32Array.of(-1)),
      () => native.tokenBytes!(-1),
      () => native.tokenBytes!("1"),
      () => new binding.TextStream({} as never),
      () => new binding.TextStream(llama.native, { stop: [""] }),
      () => new binding.Tokenizer({ kind: "nope" } as never),
    ]) {
      expect(call).toThrow(expect.objectContaining({ code: "IX_INVALID_ARGUMENT" }));
    }
    expect(llama.tokenBytes(llama.vocabSize + 5)).toHaveLength(0);
  });
});
