// Python's values as chat templates see them: truth, equality, text, JSON, items, and a budget for all of it.
// Not here: methods and filters (chat-template-library.ts), statements (chat-template-interpreter.ts).

/** A name or item that does not exist: empty text, no items, false; anything else is an error with this message. */
export class Undefined {
  readonly message: string;

  constructor(message: string) {
    this.message = message;
  }
}

export class Namespace {
  readonly entries: Map<string, Value>;

  constructor(entries: Map<string, Value>) {
    this.entries = entries;
  }
}

/** A list that prints with round brackets. */
export class Tuple extends Array<Value> {
  static override get [Symbol.species](): ArrayConstructor {
    return Array;
  }
}

export type Kwargs = ReadonlyMap<string, Value>;
export type Callable = (args: Value[], kwargs: Kwargs) => Value;
export type Dict = Map<Value, Value>;
export type Value = Undefined | null | boolean | number | string | Value[] | Dict | Namespace | Callable;

/** What a template's author would see as a TypeError, UndefinedError and so on. */
export class TemplateFault extends Error {}

export function fault(message: string): never {
  throw new TemplateFault(message);
}

const workPerClockCheck = 1 << 18;
const workPerStep = 64;

/** Bounds what a template from an untrusted file may do: steps, characters made, time. */
export class Budget {
  #stepsLeft: number;
  #charsLeft: number;
  #workSinceCheck = 0;
  readonly #deadline: number;

  constructor(limits: { steps: number; chars: number; deadline: number }) {
    this.#stepsLeft = limits.steps;
    this.#charsLeft = limits.chars;
    this.#deadline = limits.deadline;
  }

  /** Pays for work on `count` things before it is done. */
  steps(count = 1): void {
    this.#stepsLeft -= count;
    if (!(this.#stepsLeft > 0)) fault("the template takes too many steps");
    this.scan(count * workPerStep);
  }

  /** Pays for a text of `count` characters before it is made. */
  chars(count: number): void {
    this.#charsLeft -= count;
    if (!(this.#charsLeft > 0)) fault("the template makes too much text");
    this.scan(count);
  }

  /** Looks at the clock after enough work, here reading `count` characters of a text that exists. */
  scan(count: number): void {
    this.#workSinceCheck += count;
    if (this.#workSinceCheck < workPerClockCheck) return;
    this.#workSinceCheck = 0;
    if (performance.now() > this.#deadline) fault("the template takes too long");
  }

  /** Pays for one pass over a value. */
  pass(value: Value): void {
    if (typeof value === "string") this.scan(value.length);
    else if (Array.isArray(value)) this.steps(value.length);
    else if (value instanceof Map) this.steps(value.size);
  }
}

export function isNumeric(value: Value): value is number | boolean {
  return typeof value === "number" || typeof value === "boolean";
}

export function typeName(value: Value): string {
  if (value === null) return "NoneType";
  if (typeof value === "boolean") return "bool";
  if (typeof value === "number") return Number.isInteger(value) ? "int" : "float";
  if (typeof value === "string") return "str";
  if (value instanceof Tuple) return "tuple";
  if (Array.isArray(value)) return "list";
  if (value instanceof Map) return "dict";
  return value instanceof Undefined ? "Undefined" : value instanceof Namespace ? "Namespace" : "function";
}

export function truthy(value: Value): boolean {
  if (value instanceof Undefined) return false;
  if (Array.isArray(value)) return value.length > 0;
  if (value instanceof Map) return value.size > 0;
  return Boolean(value);
}

export function equals(a: Value, b: Value, budget: Budget): boolean {
  budget.steps();
  budget.scan(typeof a === "string" ? a.length : 0);
  if (a === b) return true;
  if (a instanceof Undefined) return b instanceof Undefined;
  if (isNumeric(a) && isNumeric(b)) return Number(a) === Number(b);
  if (Array.isArray(a)) {
    return Array.isArray(b) && a.length === b.length && a.every((item, i) => equals(item, b[i]!, budget));
  }
  if (!(a instanceof Map && b instanceof Map) || a.size !== b.size) return false;
  return [...a].every(([key, value]) => b.has(key) && equals(value, b.get(key)!, budget));
}

/** Negative, zero or positive, for numbers, texts and lists. */
export function compare(a: Value, b: Value, budget: Budget): number {
  budget.steps();
  budget.scan(typeof a === "string" ? a.length : 0);
  if (isNumeric(a) && isNumeric(b)) return Number(a) - Number(b);
  if (typeof a === "string" && typeof b === "string") return a < b ? -1 : a > b ? 1 : 0;
  if (Array.isArray(a) && Array.isArray(b)) {
    const i = a.findIndex((item, index) => index < b.length && !equals(item, b[index]!, budget));
    return i < 0 ? a.length - b.length : compare(a[i]!, b[i]!, budget);
  }
  if (a instanceof Undefined || b instanceof Undefined)
    return fault((a instanceof Undefined ? a : (b as Undefined)).message);
  return fault(`'<' not supported between instances of '${typeName(a)}' and '${typeName(b)}'`);
}

const hasSurrogates = /[\ud800-\udfff]/;

/** The characters of a text as Python counts them: code points. */
export function characters(text: string, budget: Budget): ArrayLike<string> & Iterable<string> {
  budget.scan(text.length);
  return hasSurrogates.test(text) ? Array.from(text) : text;
}

export function lengthOf(value: Value, budget: Budget): number {
  if (typeof value === "string") return characters(value, budget).length;
  if (Array.isArray(value)) return value.length;
  if (value instanceof Map) return value.size;
  if (value instanceof Undefined) return 0;
  return fault(`object of type '${typeName(value)}' has no len()`);
}

/** The items that a loop over the value sees. */
export function itemsOf(value: Value, budget: Budget): Value[] {
  if (Array.isArray(value)) return value;
  if (value instanceof Undefined) return [];
  if (typeof value === "string" || value instanceof Map) {
    budget.steps(lengthOf(value, budget));
    return typeof value === "string" ? Array.from(value) : [...value.keys()];
  }
  return fault(`'${typeName(value)}' object is not iterable`);
}

export function contains(container: Value, item: Value, budget: Budget): boolean {
  budget.pass(container);
  if (typeof container === "string") {
    if (typeof item !== "string") fault(`'in <string>' requires string as left operand, not ${typeName(item)}`);
    return container.includes(item);
  }
  if (container instanceof Map) return container.has(item);
  if (Array.isArray(container)) return container.some((member) => equals(member, item, budget));
  if (container instanceof Undefined) return false;
  return fault(`argument of type '${typeName(container)}' is not iterable`);
}

function numberText(value: number): string {
  if (Number.isInteger(value) && Math.abs(value) < 1e21) return String(value);
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  const absolute = Math.abs(value);
  // Python writes exponents from 1e16 and below 1e-4, with two digits at least.
  if (absolute >= 1e16 || absolute < 1e-4) return value.toExponential().replace(/e([+-])(\d)$/, "e$10$2");
  return String(value);
}

function quoted(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escapes: Record<string, string> = {
    "\\": "\\\\",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    [quote]: `\\${quote}`,
  };
  // biome-ignore lint/suspicious/noControlCharactersInRegex: Python escapes them
  const escaped = text.replace(/[\\'"\x00-\x1f\x7f-\xa0\xad]/g, (char) => {
    const hex = `\\x${char.charCodeAt(0).toString(16).padStart(2, "0")}`;
    return escapes[char] ?? (char === "'" || char === '"' ? char : hex);
  });
  return quote + escaped + quote;
}

/** Python's `repr`. */
export function repr(value: Value, budget: Budget): string {
  budget.steps();
  let text: string;
  if (typeof value === "string") text = quoted(value);
  else if (Array.isArray(value)) {
    const items = value.map((item) => repr(item, budget)).join(", ");
    text = value instanceof Tuple ? `(${items}${value.length === 1 ? "," : ""})` : `[${items}]`;
  } else if (value instanceof Map) {
    text = `{${[...value].map(([key, item]) => `${repr(key, budget)}: ${repr(item, budget)}`).join(", ")}}`;
  } else text = plainText(value);
  budget.chars(text.length);
  return text;
}

function plainText(value: Undefined | null | boolean | number | Namespace | Callable): string {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number") return numberText(value);
  return value instanceof Undefined ? "" : `<${typeName(value)}>`;
}

/** Python's `str`: what `{{ value }}` prints. */
export function str(value: Value, budget: Budget): string {
  return typeof value === "string" ? value : repr(value, budget);
}

export interface JsonOptions {
  indent: string | undefined;
  separators: [string, string];
  ensureAscii: boolean;
  sortKeys: boolean;
}

/** Python's `json.dumps`. */
export function toJson(value: Value, options: JsonOptions, budget: Budget, newline = "\n"): string {
  budget.steps();
  let text: string;
  if (value === null) text = "null";
  else if (typeof value === "boolean") text = String(value);
  else if (typeof value === "number") text = jsonNumber(value);
  else if (typeof value === "string") text = jsonString(value, options.ensureAscii);
  else if (Array.isArray(value)) {
    text = jsonGroup("[]", value, options, newline, (item, inner) => toJson(item, options, budget, inner));
  } else if (value instanceof Map) {
    const entries = [...value].map(([key, item]): [string, Value] => [jsonKey(key), item]);
    if (options.sortKeys) entries.sort(([a], [b]) => (a < b ? -1 : 1));
    text = jsonGroup("{}", entries, options, newline, ([key, item], inner) => {
      return jsonString(key, options.ensureAscii) + options.separators[1] + toJson(item, options, budget, inner);
    });
  } else return fault(`Object of type ${typeName(value)} is not JSON serializable`);
  budget.chars(text.length);
  return text;
}

function jsonGroup<T>(
  brackets: string,
  items: T[],
  { indent, separators }: JsonOptions,
  newline: string,
  write: (item: T, newline: string) => string,
): string {
  if (items.length === 0) return brackets;
  const inner = indent === undefined ? "" : newline + indent;
  const body = items.map((item) => write(item, inner)).join(separators[0] + inner);
  return brackets[0] + inner + body + (indent === undefined ? "" : newline) + brackets[1];
}

function jsonNumber(value: number): string {
  if (Number.isFinite(value)) return numberText(value);
  return Number.isNaN(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

function jsonKey(key: Value): string {
  if (typeof key === "string") return key;
  if (typeof key === "number") return numberText(key);
  if (key === null || typeof key === "boolean") return String(key);
  return fault(`keys must be str, int, float, bool or None, not ${typeName(key)}`);
}

function jsonString(text: string, ensureAscii: boolean): string {
  const json = JSON.stringify(text);
  if (!ensureAscii) return json;
  return json.replace(/[\x7f-\uffff]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

const maxDepth = 200;

/** JSON-like data as template values. Functions, symbols, bigints and cycles are refused. */
export function toValue(data: unknown, depth = 0): Value {
  if (depth > maxDepth) fault("the messages are nested too deeply");
  if (data === null || typeof data === "string" || typeof data === "number" || typeof data === "boolean") return data;
  if (Array.isArray(data)) return data.map((item) => toValue(item ?? null, depth + 1));
  if (typeof data !== "object") return fault(`cannot pass a ${typeof data} to a template`);
  const entries = Object.entries(data).filter(([, value]) => value !== undefined);
  return new Map(entries.map(([key, value]) => [key, toValue(value, depth + 1)]));
}
