// Methods of Python's str, list and dict, as templates call them, and how calls pass their arguments.
// Methods that change their object are missing on purpose: transformers renders in an immutable sandbox.
import {
  type Budget,
  type Callable,
  characters,
  type Dict,
  equals,
  fault,
  isNumeric,
  itemsOf,
  type Kwargs,
  lengthOf,
  str,
  Tuple,
  truthy,
  typeName,
  type Value,
} from "./chat-template-values.ts";
/** Arguments by position or name. */
export class Args {
  readonly list: Value[];
  readonly kwargs: Kwargs;
  readonly budget: Budget;

  constructor(list: Value[], kwargs: Kwargs, budget: Budget) {
    this.list = list;
    this.kwargs = kwargs;
    this.budget = budget;
  }

  get(index: number, name: string): Value | undefined {
    return this.list[index] ?? this.kwargs.get(name);
  }

  text(index: number, name: string, otherwise?: string): string {
    const value = this.get(index, name) ?? otherwise;
    return typeof value === "string" ? value : fault(`${name} must be str, not ${typeName(value ?? null)}`);
  }

  number(index: number, name: string, otherwise?: number): number {
    const value = this.get(index, name) ?? otherwise;
    return value !== undefined && isNumeric(value)
      ? Number(value)
      : fault(`${name} must be int, not ${typeName(value ?? null)}`);
  }

  flag(index: number, name: string, otherwise = false): boolean {
    return truthy(this.get(index, name) ?? otherwise);
  }
}

/** Python's idea of white space; JavaScript's `trim` differs in a few characters. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: Python counts them as white space
const space = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/;

export function strip(text: string, chars?: Value, sides = "lr"): string {
  const isStripped =
    typeof chars === "string" ? (char: string) => chars.includes(char) : (char: string) => space.test(char);
  let [start, end] = [0, text.length];
  if (sides.includes("l")) while (start < end && isStripped(text[start]!)) start++;
  if (sides.includes("r")) while (end > start && isStripped(text[end - 1]!)) end--;
  return text.slice(start, end);
}

function splitWhitespace(text: string, limit: number, fromRight: boolean): string[] {
  const parts: string[] = [];
  let rest = strip(text);
  while (rest !== "") {
    if (parts.length === limit) return fromRight ? [rest, ...parts.reverse()] : [...parts, rest];
    let at = fromRight ? rest.length : 0;
    if (fromRight) while (at > 0 && !space.test(rest[at - 1]!)) at--;
    else while (at < rest.length && !space.test(rest[at]!)) at++;
    parts.push(fromRight ? rest.slice(at) : rest.slice(0, at));
    rest = fromRight ? strip(rest.slice(0, at), undefined, "r") : strip(rest.slice(at), undefined, "l");
  }
  return fromRight ? parts.reverse() : parts;
}

function split(text: string, args: Args, fromRight = false): string[] {
  const separator = args.get(0, "sep") ?? null;
  const limit = args.number(1, "maxsplit", -1);
  args.budget.chars(text.length);
  if (separator === null) return splitWhitespace(text, limit < 0 ? Number.POSITIVE_INFINITY : limit, fromRight);
  if (typeof separator !== "string" || separator === "") return fault("empty separator");
  const parts = text.split(separator);
  if (limit < 0 || parts.length <= limit + 1) return parts;
  if (!fromRight) return [...parts.slice(0, limit), parts.slice(limit).join(separator)];
  const cut = parts.length - limit;
  return [parts.slice(0, cut).join(separator), ...parts.slice(cut)];
}

function partition(text: string, separator: string, fromRight: boolean): Value {
  const at = fromRight ? text.lastIndexOf(separator) : text.indexOf(separator);
  if (at < 0) return Tuple.from(fromRight ? ["", "", text] : [text, "", ""]);
  return Tuple.from([text.slice(0, at), separator, text.slice(at + separator.length)]);
}

export function replace(text: string, args: Args): string {
  const [old, by] = [args.text(0, "old"), args.text(1, "new")];
  const limit = args.number(2, "count", -1);
  args.budget.chars(text.length);
  const parts = old === "" ? ["", ...characters(text, args.budget), ""] : text.split(old);
  args.budget.chars(text.length + parts.length * by.length);
  if (limit < 0 || parts.length <= limit + 1) return parts.join(by);
  return [...parts.slice(0, limit), parts.slice(limit).join(old)].join(by);
}

function affix(wanted: Value | undefined, test: (affix: string) => boolean): boolean {
  const list = wanted instanceof Tuple ? [...wanted] : [wanted];
  return list.some((item) =>
    typeof item === "string" ? test(item) : fault(`first arg must be str, not ${typeName(item ?? null)}`),
  );
}

export const title = (text: string): string =>
  text.replace(/\p{L}+/gu, (word) => {
    const [first = "", ...rest] = word;
    return first.toUpperCase() + rest.join("").toLowerCase();
  });

export const capitalize = (text: string): string => {
  const [first = "", ...rest] = text;
  return first.toUpperCase() + rest.join("").toLowerCase();
};

export function pad(text: string, args: Args, left: (missing: number) => number): string {
  const missing = Math.max(0, args.number(0, "width") - lengthOf(text, args.budget));
  args.budget.chars(missing + text.length);
  const fill = args.text(1, "fillchar", " ");
  return fill.repeat(left(missing)) + text + fill.repeat(missing - left(missing));
}

/** `"{} {0} {name}".format(...)`, without format specifications. */
function format(text: string, args: Args): string {
  let next = 0;
  return text.replace(/\{\{|\}\}|\{(\w*)\}/g, (whole, key: string | undefined) => {
    if (key === undefined) return whole[0]!;
    const value = key === "" ? args.list[next++] : /^\d+$/.test(key) ? args.list[Number(key)] : args.kwargs.get(key);
    const shown = str(value ?? fault(`format has no argument {${key}}`), args.budget);
    args.budget.chars(shown.length);
    return shown;
  });
}

/** `"%s is %d" % (a, b)`. */
export function percentFormat(text: string, value: Value, budget: Budget): string {
  const values = value instanceof Tuple ? [...value] : [value];
  const result = text.replace(/%(?:%|(0?)(\d{0,3})(?:\.(\d{1,2}))?([sdifr]))/g, (whole, zero, width, digits, kind) => {
    if (whole === "%%") return "%";
    const item = values.shift() ?? fault("not enough arguments for format string");
    let shown = str(item, budget);
    if (kind !== "s" && kind !== "r") {
      if (!isNumeric(item)) fault(`%${kind} format: a real number is required, not ${typeName(item)}`);
      shown = kind === "f" ? Number(item).toFixed(digits ? Number(digits) : 6) : String(Math.trunc(Number(item)));
    }
    budget.chars(shown.length + 999);
    return shown.padStart(Number(width), zero ? "0" : " ");
  });
  return values.length > 0 && value instanceof Tuple
    ? fault("not all arguments converted during string formatting")
    : result;
}

export type Method<T> = (self: T, args: Args) => Value;

/** From an index into the text, or -1, to Python's count of characters. */
const indexInCharacters = (text: string, index: number, budget: Budget): number =>
  index < 0 ? -1 : lengthOf(text.slice(0, index), budget);

const stringMethods: Record<string, Method<string>> = {
  upper: (s) => s.toUpperCase(),
  lower: (s) => s.toLowerCase(),
  title,
  capitalize,
  strip: (s, a) => strip(s, a.get(0, "chars")),
  lstrip: (s, a) => strip(s, a.get(0, "chars"), "l"),
  rstrip: (s, a) => strip(s, a.get(0, "chars"), "r"),
  split: (s, a) => split(s, a),
  rsplit: (s, a) => split(s, a, true),
  splitlines: (s) => {
    // biome-ignore lint/suspicious/noControlCharactersInRegex: Python ends lines at them
    const lines = s.split(/\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/);
    return lines.at(-1) === "" ? lines.slice(0, -1) : lines;
  },
  partition: (s, a) => partition(s, a.text(0, "sep"), false),
  rpartition: (s, a) => partition(s, a.text(0, "sep"), true),
  replace,
  startswith: (s, a) => affix(a.list[0], (prefix) => s.startsWith(prefix)),
  endswith: (s, a) => affix(a.list[0], (suffix) => s.endsWith(suffix)),
  removeprefix: (s, a) => (s.startsWith(a.text(0, "prefix")) ? s.slice(a.text(0, "prefix").length) : s),
  removesuffix: (s, a) => (s.endsWith(a.text(0, "suffix")) ? s.slice(0, s.length - a.text(0, "suffix").length) : s),
  find: (s, a) => indexInCharacters(s, s.indexOf(a.text(0, "sub")), a.budget),
  rfind: (s, a) => indexInCharacters(s, s.lastIndexOf(a.text(0, "sub")), a.budget),
  count: (s, a) => s.split(a.text(0, "sub")).length - 1,
  join: (s, a) => join(a.list[0] ?? null, s, a.budget),
  format,
  center: (s, a) => pad(s, a, (missing) => Math.floor(missing / 2)),
  ljust: (s, a) => pad(s, a, () => 0),
  rjust: (s, a) => pad(s, a, (missing) => missing),
  zfill: (s, a) => pad(s, new Args([a.number(0, "width"), "0"], a.kwargs, a.budget), (missing) => missing),
  isdigit: (s) => /^\p{Nd}+$/u.test(s),
  isnumeric: (s) => /^\p{N}+$/u.test(s),
  isalpha: (s) => /^\p{L}+$/u.test(s),
  isalnum: (s) => /^[\p{L}\p{N}]+$/u.test(s),
  isspace: (s) => s !== "" && strip(s) === "",
  isupper: (s) => s !== s.toLowerCase() && s === s.toUpperCase(),
  islower: (s) => s !== s.toUpperCase() && s === s.toLowerCase(),
};

export const pairs = (dict: Dict): Value[] => [...dict].map((pair) => Tuple.from(pair));

const dictMethods: Record<string, Method<Dict>> = {
  items: pairs,
  keys: (d) => [...d.keys()],
  values: (d) => [...d.values()],
  get: (d, a) => d.get(a.list[0] ?? null) ?? a.get(1, "default") ?? null,
  copy: (d) => new Map(d),
};

const listMethods: Record<string, Method<Value[]>> = {
  count: (l, a) => l.filter((item) => equals(item, a.list[0] ?? null, a.budget)).length,
  index: (l, a) => {
    const at = l.findIndex((item) => equals(item, a.list[0] ?? null, a.budget));
    return at < 0 ? fault("the item is not in the list") : at;
  },
  copy: (l) => [...l],
};

/** A method bound to its object, undefined when the type has none of that name. */
export function methodOf(self: Value, name: string, budget: Budget): Callable | undefined {
  const bind = <T extends Value>(methods: Record<string, Method<T>>, object: T): Callable | undefined => {
    const method = Object.hasOwn(methods, name) ? methods[name] : undefined;
    if (!method) return undefined;
    return (args, kwargs) => {
      budget.pass(object);
      return method(object, new Args(args, kwargs, budget));
    };
  };
  if (typeof self === "string") return bind(stringMethods, self);
  if (self instanceof Map) return bind(dictMethods, self);
  return Array.isArray(self) ? bind(listMethods, self) : undefined;
}

/** Charged before it is made. */
export function join(list: Value, separator: string, budget: Budget): string {
  const parts = itemsOf(list, budget).map((item) => str(item, budget));
  budget.chars(parts.reduce((sum, part) => sum + part.length + separator.length, 0));
  return parts.join(separator);
}
