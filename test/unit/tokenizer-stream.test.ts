// Streams of tokens: pieces joined are the one-shot text for every split, family and stop string.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { TextStream } from "../../lib/text/stream.ts";
import { Tokenizer } from "../../lib/text/tokenizer.ts";
import { fixtureJson, goldenTokenizer, loadBinding, tinyNames } from "./tokenizer-binding.ts";

const binding = loadBinding();

/** Feeds ids in chunks that end at the given places. */
function streamed(stream: TextStream, ids: readonly number[], cuts: readonly number[]): string {
  let text = "";
  let at = 0;
  const ends = [...cuts.map((cut) => cut % (ids.length + 1)), ids.length].sort((a, b) => a - b);
  for (const end of ends) {
    text += stream.push(Int32Array.from(ids.slice(at, end)));
    at = end;
  }
  return text + stream.flush();
}

/** The earliest end of a stop string, by definition. */
function cutAtStop(text: string, stop: readonly string[], includeStop: boolean): { text: string; index: number } {
  const bytes = Buffer.from(text);
  for (let end = 1; end <= bytes.length; end++) {
    const found = stop
      .map((value, index) => ({ index, bytes: Buffer.from(value) }))
      .filter((s) => end >= s.bytes.length && bytes.subarray(end - s.bytes.length, end).equals(s.bytes))
      .sort((a, b) => b.bytes.length - a.bytes.length || a.index - b.index)[0];
    if (!found) continue;
    return { text: bytes.subarray(0, includeStop ? end : end - found.bytes.length).toString(), index: found.index };
  }
  return { text, index: -1 };
}

const chunkCuts = fc.array(fc.nat(200), { maxLength: 8 });

describe.each([...tinyNames, "mistral_v1"])("%s", (name) => {
  const tokenizer = goldenTokenizer(binding, name);
  if (!tokenizer) {
    test.skip("SKIPPED: its tokenizer file is not on this machine", () => {});
    return;
  }
  const idLists = fc.array(fc.nat(tokenizer.vocabSize - 1), { maxLength: 40 });

  test("pieces joined are the one-shot text, and no piece ends inside a character", () => {
    fc.assert(
      fc.property(idLists, chunkCuts, fc.boolean(), fc.boolean(), (ids, cuts, keepSpecial, continuation) => {
        const options = { keepSpecial, continuation };
        const whole = tokenizer.decode(Int32Array.from(ids), options);
        expect(streamed(new TextStream(binding, tokenizer, options), ids, cuts)).toBe(whole);
        const single = new TextStream(binding, tokenizer, options);
        expect(ids.map((id) => single.push(id)).join("") + single.flush()).toBe(whole);
      }),
      { numRuns: 300 },
    );
  });

  test("the text is that of the tokens' bytes", () => {
    fc.assert(
      fc.property(idLists, (ids) => {
        const kept = ids.filter((id) => !tokenizer.isSpecial(id));
        const bytes = Buffer.concat(kept.map((id) => tokenizer.tokenBytes(id)));
        const text = tokenizer.decode(Int32Array.from(ids), { continuation: true });
        expect(text).toBe(new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes));
      }),
    );
  });
});

test.each(["tiny_bytelevel_gpt2", "tiny_bytelevel_llama"])("%s: every text round-trips", (name) => {
  const tokenizer = goldenTokenizer(binding, name)!;
  fc.assert(
    fc.property(fc.string({ unit: "grapheme", maxLength: 40 }), (text) => {
      expect(tokenizer.decode(tokenizer.encode(text))).toBe(text);
    }),
  );
});

describe("stop strings", () => {
  const tokenizer = Tokenizer.fromJson(binding, fixtureJson("tiny_bytelevel_llama"));

  test("are found across tokens, the first to end, whatever the split", () => {
    const letters = fc.string({ unit: fc.constantFrom("a", "b", "é", "è", "日", " ", "本"), maxLength: 40 });
    const stops = fc.array(fc.string({ unit: fc.constantFrom("a", "b", "é", "日", " "), minLength: 1, maxLength: 5 }), {
      maxLength: 3,
    });
    fc.assert(
      fc.property(letters, stops, chunkCuts, fc.boolean(), (text, stop, cuts, includeStop) => {
        const ids = [...tokenizer.encode(text, { addSpecial: false })];
        const stream = new TextStream(binding, tokenizer, { stop, includeStop });
        const got = streamed(stream, ids, cuts);
        expect({ text: got, index: stream.stopIndex }).toEqual(cutAtStop(text, stop, includeStop));
      }),
      { numRuns: 1000 },
    );
  });

  test("text that may begin one is held back, and given when it does not", () => {
    const stream = new TextStream(binding, tokenizer, { stop: ["abcd"] });
    const push = (text: string): string => stream.push(tokenizer.encode(text, { addSpecial: false }));
    expect(push("x ab")).toBe("x ");
    expect(push("c")).toBe("");
    expect(push("e")).toBe("abce");
    expect(push("ab")).toBe("");
    expect(stream.flush()).toBe("ab");
    expect(stream.stopIndex).toBe(-1);
  });

  test("nothing follows one", () => {
    const stream = new TextStream(binding, tokenizer, { stop: ["zz", "END"] });
    expect(stream.push(tokenizer.encode("one END two", { addSpecial: false }))).toBe("one ");
    expect(stream.stopIndex).toBe(1);
    expect(stream.push(tokenizer.encode("more"))).toBe("");
    expect(stream.flush()).toBe("");
  });

  test("more than 64 KiB of them are refused", () => {
    expect(() => new TextStream(binding, tokenizer, { stop: ["x".repeat(70000)] })).toThrow(
      expect.objectContaining({ code: "IX_INVALID_ARGUMENT" }),
    );
  });
});

test("incomplete characters wait for their rest", () => {
  const tokenizer = Tokenizer.fromJson(binding, fixtureJson("tiny_bytelevel_llama"));
  const byteIds = [...Buffer.from("😀")].map(
    (byte) =>
      Array.from({ length: tokenizer.vocabSize }, (_, id) => id).find((id) => {
        const bytes = tokenizer.tokenBytes(id);
        return bytes.length === 1 && bytes[0] === byte;
      })!,
  );
  const stream = new TextStream(binding, tokenizer);
  expect(byteIds.map((id) => stream.push(id))).toEqual(["", "", "", "😀"]);
  expect(stream.push(Int32Array.from(byteIds.slice(0, 2)))).toBe("");
  expect(stream.flush()).toBe("\ufffd");
});
