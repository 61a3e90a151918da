// Jinja's filters. Not here: what `is` asks (chat-template-predicates.ts), methods of values (chat-template-methods.ts).
import {
  Args,
  capitalize,
  join,
  type Method,
  pad,
  pairs,
  percentFormat,
  replace,
  strip,
  title,
} from "./chat-template-methods.ts";
import { testValue } from "./chat-template-predicates.ts";
import {
  compare,
  fault,
  isNumeric,
  itemsOf,
  type JsonOptions,
  lengthOf,
  Namespace,
  str,
  Tuple,
  toJson,
  truthy,
  typeName,
  Undefined,
  type Value,
} from "./chat-template-values.ts";

/** `a.b.0`: attribute paths of `map`, `selectattr`, `sort`, `join`. */
function attribute(value: Value, path: Value): Value {
  let current = value;
  for (const part of String(path).split(".")) {
    const missing = new Undefined(`'${typeName(current)} object' has no attribute '${part}'`);
    if (current instanceof Map) current = current.get(part) ?? missing;
    else if (current instanceof Namespace) current = current.entries.get(part) ?? missing;
    else if (Array.isArray(current)) current = current[Number(part)] ?? missing;
    else if (current instanceof Undefined) return fault(current.message);
    else return missing;
  }
  return current;
}

/** Texts compare without regard to case unless the filter's `case_sensitive`, at position `index`, says so. */
function fold(value: Value, args: Args, index: number): Value {
  return typeof value === "string" && !args.flag(index, "case_sensitive") ? value.toLowerCase() : value;
}

function sorted(items: Value[], args: Args, key: (item: Value) => Value): Value[] {
  const { budget } = args;
  budget.steps(items.length);
  const sign = args.flag(0, "reverse") ? -1 : 1;
  return [...items].sort((a, b) => sign * compare(fold(key(a), args, 1), fold(key(b), args, 1), budget));
}

/** The smallest item for sign -1, the largest for 1; undefined of nothing. */
function extreme(list: Value, args: Args, sign: number): Value {
  const path = args.get(1, "attribute");
  const key = (item: Value) => fold(path === undefined ? item : attribute(item, path), args, 0);
  const items = itemsOf(list, args.budget);
  if (items.length === 0) return new Undefined("No aggregated item, sequence was empty.");
  return items.reduce((best, item) => (sign * compare(key(item), key(best), args.budget) > 0 ? item : best));
}

function select(list: Value, args: Args, wanted: boolean, byAttribute: boolean): Value {
  const path = byAttribute ? args.list[0] : undefined;
  const [name, ...operands] = byAttribute ? args.list.slice(1) : args.list;
  return itemsOf(list, args.budget).filter((item) => {
    args.budget.steps();
    const value = path === undefined ? item : attribute(item, path);
    const holds = name === undefined ? truthy(value) : testValue(String(name), value, operands, args.budget);
    return holds === wanted;
  });
}

function jsonOptions(args: Args): JsonOptions {
  const given = args.get(1, "indent") ?? null;
  if (isNumeric(given) && Number(given) > 64) fault("tojson: indent is too wide");
  const indent =
    given === null ? undefined : typeof given === "string" ? given : " ".repeat(Math.max(0, Number(given)));
  const separators = args.get(2, "separators") ?? null;
  const [item, key] =
    separators === null ? [indent === undefined ? ", " : ",", ": "] : itemsOf(separators, args.budget);
  return {
    indent,
    separators: [String(item), String(key)],
    ensureAscii: args.flag(0, "ensure_ascii"),
    sortKeys: args.flag(3, "sort_keys"),
  };
}

function indent(text: string, args: Args): string {
  const width = args.get(0, "width") ?? 4;
  if (typeof width === "number" && width > 1024) fault("indent: the width is too large");
  const by = typeof width === "string" ? width : " ".repeat(Number(width));
  const lines = text.split("\n");
  args.budget.chars(text.length + lines.length * by.length);
  const keeps = (line: string, i: number) =>
    (i === 0 && !args.flag(1, "first")) || (line === "" && !args.flag(2, "blank"));
  return lines.map((line, i) => (keeps(line, i) ? line : by + line)).join("\n");
}

function toNumber(value: Value, args: Args, parse: (text: string) => number): Value {
  const number = isNumeric(value) ? Number(value) : typeof value === "string" ? parse(strip(value)) : Number.NaN;
  return Number.isNaN(number) ? (args.get(0, "default") ?? 0) : number;
}

function mapFilter(list: Value, args: Args): Value {
  const items = itemsOf(list, args.budget);
  const path = args.kwargs.get("attribute");
  if (path !== undefined) {
    return items.map((item) => {
      const value = attribute(item, path);
      return value instanceof Undefined ? (args.kwargs.get("default") ?? value) : value;
    });
  }
  const [name, ...rest] = args.list;
  return items.map((item) => applyFilter(String(name), item, new Args(rest, args.kwargs, args.budget)));
}

function unique(list: Value, args: Args): Value {
  const seen = new Set<Value>();
  return itemsOf(list, args.budget).filter((item) => {
    const key = typeof item === "string" && !args.flag(0, "case_sensitive") ? item.toLowerCase() : item;
    return !seen.has(key) && seen.add(key);
  });
}

function groupBy(list: Value, args: Args): Value {
  const path = args.get(0, "attribute") ?? null;
  const groups = new Map<Value, Value[]>();
  for (const item of sorted(itemsOf(list, args.budget), new Args([], new Map(), args.budget), (i) =>
    attribute(i, path),
  )) {
    const key = attribute(item, path);
    groups.set(key, [...(groups.get(key) ?? []), item]);
  }
  return [...groups].map((pair) => Tuple.from<Value>(pair));
}

const escapes: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;" };
const escapeHtml: Method<Value> = (v, a) => str(v, a.budget).replace(/[&<>"']/g, (char) => escapes[char]!);
const otherwise: Method<Value> = (v, a) =>
  v instanceof Undefined || (a.flag(1, "boolean") && !truthy(v)) ? (a.get(0, "default_value") ?? "") : v;
const length: Method<Value> = (v, a) => lengthOf(v, a.budget);

const filters: Record<string, Method<Value>> = {
  abs: (v) => (isNumeric(v) ? Math.abs(Number(v)) : fault(`bad operand type for abs(): '${typeName(v)}'`)),
  attr: (v, a) => attribute(v, a.text(0, "name")),
  capitalize: (v, a) => capitalize(str(v, a.budget)),
  center: (v, a) => pad(str(v, a.budget), a, (missing) => Math.floor(missing / 2)),
  count: length,
  d: otherwise,
  default: otherwise,
  dictsort: (v, a) => {
    const by = a.text(1, "by", "key") === "value" ? 1 : 0;
    const order = new Args([a.flag(2, "reverse"), a.flag(0, "case_sensitive")], new Map(), a.budget);
    return v instanceof Map
      ? sorted(pairs(v), order, (pair) => (pair as Value[])[by]!)
      : fault(`'${typeName(v)} object' has no attribute 'items'`);
  },
  e: escapeHtml,
  escape: escapeHtml,
  first: (v, a) => itemsOf(v, a.budget)[0] ?? new Undefined("No first item, sequence was empty."),
  float: (v, a) => toNumber(v, a, (text) => (text === "" ? Number.NaN : Number(text))),
  format: (v, a) => percentFormat(str(v, a.budget), Tuple.from(a.list), a.budget),
  groupby: groupBy,
  indent: (v, a) => indent(str(v, a.budget), a),
  int: (v, a) => toNumber(v, a, (text) => (/^[+-]?\d+/.test(text) ? Math.trunc(Number.parseFloat(text)) : Number.NaN)),
  items: (v) =>
    v instanceof Map ? pairs(v) : v instanceof Undefined ? [] : fault("Can only get item pairs from a mapping."),
  join: (v, a) => {
    const path = a.get(1, "attribute");
    const items = path === undefined ? v : itemsOf(v, a.budget).map((item) => attribute(item, path));
    return join(items, a.text(0, "d", ""), a.budget);
  },
  last: (v, a) => itemsOf(v, a.budget).at(-1) ?? new Undefined("No last item, sequence was empty."),
  length,
  list: (v, a) => [...itemsOf(v, a.budget)],
  lower: (v, a) => str(v, a.budget).toLowerCase(),
  map: mapFilter,
  max: (v, a) => extreme(v, a, 1),
  min: (v, a) => extreme(v, a, -1),
  reject: (v, a) => select(v, a, false, false),
  rejectattr: (v, a) => select(v, a, false, true),
  replace: (v, a) => replace(str(v, a.budget), a),
  reverse: (v, a) => (typeof v === "string" ? [...v].reverse().join("") : [...itemsOf(v, a.budget)].reverse()),
  round: (v, a) => {
    const scale = 10 ** a.number(0, "precision", 0);
    const how = { ceil: Math.ceil, floor: Math.floor }[a.text(1, "method", "common")] ?? Math.round;
    return how(Number(v) * scale) / scale;
  },
  safe: (v) => v,
  select: (v, a) => select(v, a, true, false),
  selectattr: (v, a) => select(v, a, true, true),
  sort: (v, a) => {
    const path = a.get(2, "attribute");
    return sorted(itemsOf(v, a.budget), a, (item) => (path === undefined ? item : attribute(item, path)));
  },
  string: (v, a) => str(v, a.budget),
  sum: (v, a) => {
    const path = a.get(0, "attribute");
    return itemsOf(v, a.budget).reduce<number>(
      (sum, item) => sum + Number(path === undefined ? item : attribute(item, path)),
      0,
    );
  },
  title: (v, a) => title(str(v, a.budget)),
  tojson: (v, a) =>
    toJson(
      v instanceof Namespace ? fault("Object of type Namespace is not JSON serializable") : v,
      jsonOptions(a),
      a.budget,
    ),
  trim: (v, a) => strip(str(v, a.budget), a.get(0, "chars")),
  unique,
  upper: (v, a) => str(v, a.budget).toUpperCase(),
};

export function applyFilter(name: string, value: Value, args: Args): Value {
  const filter = Object.hasOwn(filters, name) ? filters[name]! : fault(`No filter named '${name}'.`);
  args.budget.pass(value);
  return filter(value, args);
}
