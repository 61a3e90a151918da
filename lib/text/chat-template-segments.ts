// Tells a user's look-alikes of special tokens from those that the template wrote: marks in the data, found again in the text.
// Not here: rendering (chat-template.ts), nor how parts become tokens (the tokenizer).
import type { PromptSegment, TemplateData } from "./chat-template.ts";

/** A place in the `string`-th text of the data (in walking order), before whose `offset` the marker goes. */
export interface Mark {
  string: number;
  offset: number;
}

/** A private-use character that does not occur in `text`. */
export function chooseMarker(text: string): string {
  let code = 0xe000;
  while (text.includes(String.fromCharCode(code))) code++;
  return String.fromCharCode(code);
}

/** Finds special tokens in texts. */
class Finder {
  /** Leftmost, then longest, as tokenizers look for special tokens. */
  readonly pattern: RegExp;
  readonly #beginnings = new Set<string>();
  readonly #longest: number;

  constructor(tokens: readonly string[]) {
    const wanted = [...new Set(tokens)].filter((token) => token !== "").sort((a, b) => b.length - a.length);
    this.#longest = wanted[0]?.length ?? 0;
    for (const token of wanted) {
      for (let length = 1; length < token.length; length++) this.#beginnings.add(token.slice(0, length));
    }
    const escaped = wanted.map((token) => token.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&"));
    this.pattern = new RegExp(escaped.join("|") || "(?!)", "g");
  }

  /** Whether a text ends like the beginning of a token, which what follows could complete. */
  isOpenEnded(text: string): boolean {
    for (let length = 1; length < this.#longest && length <= text.length; length++) {
      if (this.#beginnings.has(text.slice(-length))) return true;
    }
    return false;
  }
}

/** Vocabularies have thousands of special tokens: a model's list is prepared once, not for each request. */
const finders = new WeakMap<readonly string[], Finder>();

function finderOf(tokens: readonly string[]): Finder {
  let finder = finders.get(tokens);
  if (!finder) finders.set(tokens, (finder = new Finder(tokens)));
  return finder;
}

/** Where a mark inside an occurrence goes: behind its first character. */
function firstCharacterEnd(token: string): number {
  return token.codePointAt(0)! > 0xffff ? 2 : 1;
}

/**
 * Places that must not form a special token: inside each look-alike, and at the end of a text that ends like the
 * beginning of one (the next text could complete it).
 */
export function findMarks(data: TemplateData, specialTokens: readonly string[]): Mark[] {
  const finder = finderOf(specialTokens);
  const marks: Mark[] = [];
  let string = 0;
  mapStrings(data, (text) => {
    for (const { 0: token, index } of text.matchAll(finder.pattern)) {
      marks.push({ string, offset: index + firstCharacterEnd(token) });
    }
    if (finder.isOpenEnded(text)) marks.push({ string, offset: text.length });
    string++;
    return text;
  });
  return marks;
}

/** The data with `marker` at the given places. */
export function markStrings(data: TemplateData, marks: readonly Mark[], marker: string): TemplateData {
  const byString = groupMarks(marks);
  let string = 0;
  return mapStrings(data, (text) => {
    const places = byString.get(string++) ?? [];
    return places.reduceRight((marked, { offset }) => marked.slice(0, offset) + marker + marked.slice(offset), text);
  });
}

function groupMarks(marks: readonly Mark[]): Map<number, Mark[]> {
  const groups = new Map<number, Mark[]>();
  for (const mark of marks) {
    const group = groups.get(mark.string);
    if (group) group.push(mark);
    else groups.set(mark.string, [mark]);
  }
  return groups;
}

/** Splits a marked text at the occurrences of special tokens that have a mark inside. */
export function segmentsOf(marked: string, marker: string, specialTokens: readonly string[]): PromptSegment[] {
  const places = new Set<number>();
  const parts = marked.split(marker);
  let length = 0;
  for (const part of parts.slice(0, -1)) places.add((length += part.length));
  const text = parts.join("");
  const segments: PromptSegment[] = [];
  const add = (piece: string, fromTemplate: boolean) => {
    const last = segments.at(-1);
    if (piece === "") return;
    if (last?.fromTemplate === fromTemplate) last.text += piece;
    else segments.push({ text: piece, fromTemplate });
  };
  let done = 0;
  for (const { 0: token, index } of text.matchAll(finderOf(specialTokens).pattern)) {
    const inside = Array.from({ length: Math.max(1, token.length - 1) }, (_, i) => index + i + 1);
    add(text.slice(done, index), true);
    add(token, !inside.some((place) => places.has(place)));
    done = index + token.length;
  }
  add(text.slice(done), true);
  return segments;
}

/** A copy of the data with each text, keys included, replaced by `replace(text)`, always in the same order. */
function mapStrings(data: TemplateData, replace: (text: string) => string): TemplateData {
  const walk = (value: unknown, depth: number): unknown => {
    if (typeof value === "string") return replace(value);
    if (typeof value !== "object" || value === null || depth > 200) return value;
    if (Array.isArray(value)) return value.map((item) => walk(item, depth + 1));
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [replace(key), walk(item, depth + 1)]));
  };
  const variables = Object.entries(data.variables).map(([name, value]) => [name, walk(value, 1)]);
  return {
    ...data,
    messages: walk(data.messages, 0) as TemplateData["messages"],
    variables: Object.fromEntries(variables),
  };
}
