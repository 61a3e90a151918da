// Operators and slices with Python's semantics.
import { percentFormat } from "./chat-template-methods.ts";
import {
  type Budget,
  characters,
  compare,
  contains,
  equals,
  fault,
  isNumeric,
  str,
  Tuple,
  truthy,
  typeName,
  Undefined,
  type Value,
} from "./chat-template-values.ts";

/** `object[start:stop:step]`, null for what is absent. */
export function slice(object: Value, bounds: Value[], budget: Budget): Value {
  if (object instanceof Undefined) fault(object.message);
  if (typeof object !== "string" && !Array.isArray(object)) fault(`'${typeName(object)}' object is not subscriptable`);
  const [start, stop, given] = bounds.map((value) =>
    value === null || typeof value === "number" ? value : fault("slice indices must be integers or None"),
  );
  const step = given ?? 1;
  if (step === 0) fault("slice step cannot be zero");
  const items = typeof object === "string" ? characters(object, budget) : object;
  const length = items.length;
  // Python's rule: negative counts from the end, then both ends are clamped to where a step can begin or end.
  const [low, high] = step > 0 ? [0, length] : [-1, length - 1];
  const clamp = (value: number | null | undefined, absent: number) =>
    value == null ? absent : Math.min(Math.max(value < 0 ? value + length : value, low), high);
  const first = clamp(start, step > 0 ? low : high);
  const end = clamp(stop, step > 0 ? high : low);
  if (typeof items === "string" && step === 1) return items.slice(first, end);
  const picked: Value[] = [];
  for (let i = first; step > 0 ? i < end : i > end; i += step) picked.push(items[i]!);
  budget.steps(picked.length);
  return typeof object === "string" ? picked.join("") : object instanceof Tuple ? Tuple.from(picked) : picked;
}

export function unary(operator: string, value: Value): Value {
  if (operator === "not") return !truthy(value);
  if (!isNumeric(value)) fault(`bad operand type for unary ${operator}: '${typeName(value)}'`);
  return operator === "-" ? -Number(value) : Number(value);
}

/** All operators but `and` and `or`, which may leave out their right side. */
export function binary(operator: string, left: Value, right: Value, budget: Budget): Value {
  switch (operator) {
    case "==":
      return equals(left, right, budget);
    case "!=":
      return !equals(left, right, budget);
    case "<":
      return compare(left, right, budget) < 0;
    case ">":
      return compare(left, right, budget) > 0;
    case "<=":
      return compare(left, right, budget) <= 0;
    case ">=":
      return compare(left, right, budget) >= 0;
    case "in":
      return contains(right, left, budget);
    case "not in":
      return !contains(right, left, budget);
    case "~":
      return concatenate(str(left, budget), str(right, budget), budget);
    default:
      return arithmetic(operator, left, right, budget);
  }
}

function concatenate(left: string, right: string, budget: Budget): string {
  budget.chars(left.length + right.length);
  return left + right;
}

function arithmetic(operator: string, left: Value, right: Value, budget: Budget): Value {
  for (const side of [left, right]) if (side instanceof Undefined) fault(side.message);
  if (isNumeric(left) && isNumeric(right)) return calculate(operator, Number(left), Number(right));
  if (operator === "%" && typeof left === "string") return percentFormat(left, right, budget);
  if (operator === "+") {
    if (typeof left === "string" && typeof right === "string") return concatenate(left, right, budget);
    if (Array.isArray(left) && Array.isArray(right)) {
      budget.steps(left.length + right.length);
      return [...left, ...right];
    }
    if (typeof left === "string") fault(`can only concatenate str (not "${typeName(right)}") to str`);
  }
  if (operator === "*" && typeof left === "string" && typeof right === "number") {
    budget.chars(left.length * Math.max(0, right));
    return left.repeat(Math.max(0, right));
  }
  return fault(`unsupported operand type(s) for ${operator}: '${typeName(left)}' and '${typeName(right)}'`);
}

function calculate(operator: string, a: number, b: number): number {
  if ("/%".includes(operator[0]!) && b === 0) fault("division by zero");
  switch (operator) {
    case "+":
      return a + b;
    case "-":
      return a - b;
    case "*":
      return a * b;
    case "/":
      return a / b;
    case "//":
      return Math.floor(a / b);
    case "%":
      return a - b * Math.floor(a / b);
    case "**":
      return a ** b;
    default:
      return fault(`unknown operator ${operator}`);
  }
}
