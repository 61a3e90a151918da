// The names that every template has: constants, range, namespace, the clock, raise_exception.
import { Args } from "./chat-template-methods.ts";
import { integer } from "./chat-template-predicates.ts";
import { type Budget, type Callable, fault, itemsOf, Namespace, str, type Value } from "./chat-template-values.ts";

function range(args: Args): Value {
  const [a = 0, b, step = 1] = args.list.map((value) => integer(value));
  const [start, stop] = b === undefined ? [0, a] : [a, b];
  if (step === 0) fault("range() arg 3 must not be zero");
  const count = Math.max(0, Math.ceil((stop - start) / step));
  args.budget.steps(count);
  return Array.from({ length: count }, (_, i) => start + i * step);
}

function dictOf(args: Args): Map<Value, Value> {
  const [source = new Map()] = args.list;
  const entries =
    source instanceof Map ? [...source] : itemsOf(source, args.budget).map((pair) => itemsOf(pair, args.budget));
  return new Map([...(entries as [Value, Value][]), ...args.kwargs]);
}

const months = "January February March April May June July August September October November December".split(" ");
const weekdays = "Sunday Monday Tuesday Wednesday Thursday Friday Saturday".split(" ");

/** C's strftime in the C locale, for the directives that dates and times need. */
export function strftime(date: Date, format: string): string {
  const two = (value: number) => String(value).padStart(2, "0");
  const dayOfYear =
    Math.round(
      (Date.UTC(date.getFullYear(), date.getMonth(), date.getDate()) - Date.UTC(date.getFullYear(), 0, 1)) / 864e5,
    ) + 1;
  const directives: Record<string, string> = {
    Y: String(date.getFullYear()),
    y: two(date.getFullYear() % 100),
    m: two(date.getMonth() + 1),
    d: two(date.getDate()),
    e: String(date.getDate()).padStart(2, " "),
    H: two(date.getHours()),
    I: two(date.getHours() % 12 || 12),
    M: two(date.getMinutes()),
    S: two(date.getSeconds()),
    p: date.getHours() < 12 ? "AM" : "PM",
    B: months[date.getMonth()]!,
    b: months[date.getMonth()]!.slice(0, 3),
    A: weekdays[date.getDay()]!,
    a: weekdays[date.getDay()]!.slice(0, 3),
    j: String(dayOfYear).padStart(3, "0"),
    "%": "%",
  };
  return format.replace(/%(-?)([a-zA-Z%])/g, (whole, bare: string, letter: string) => {
    const text = directives[letter];
    return text === undefined ? whole : bare ? text.replace(/^[0 ]+(?=\d)/, "") : text;
  });
}

/** What raise_exception throws: the message is the template's own. */
export class RaisedByTemplate extends Error {}

/** The names that every template has. */
export function globals(budget: Budget): Map<string, Value> {
  const callable =
    (body: (args: Args) => Value): Callable =>
    (list, kwargs) =>
      body(new Args(list, kwargs, budget));
  return new Map<string, Value>([
    ["true", true],
    ["false", false],
    ["none", null],
    ["True", true],
    ["False", false],
    ["None", null],
    ["range", callable(range)],
    ["dict", callable(dictOf)],
    ["namespace", callable((args) => new Namespace(dictOf(args) as Map<string, Value>))],
    ["strftime_now", callable((args) => strftime(new Date(), args.text(0, "format")))],
    [
      "raise_exception",
      callable((args) => {
        throw new RaisedByTemplate(str(args.list[0] ?? "", budget));
      }),
    ],
  ]);
}
