// What `x is y` asks, and `select("y")` with it.
import { methodOf } from "./chat-template-methods.ts";
import {
  type Budget,
  compare,
  contains,
  equals,
  fault,
  isNumeric,
  str,
  Undefined,
  type Value,
} from "./chat-template-values.ts";

type Test = (value: Value, operands: Value[], budget: Budget) => boolean;

/** The value as an integer; an error when it is none. */
export const integer = (value: Value): number =>
  isNumeric(value) && Number.isInteger(Number(value)) ? Number(value) : fault("not all arguments converted");
const operand = (operands: Value[]): Value => operands[0] ?? null;
const isCased = (text: string, method: string, budget: Budget): boolean =>
  methodOf(text, method, budget)!([], new Map()) === true;
const isEqual: Test = (v, o, b) => equals(v, operand(o), b);
const isUnequal: Test = (v, o, b) => !equals(v, operand(o), b);
const isGreater: Test = (v, o, b) => compare(v, operand(o), b) > 0;
const isLess: Test = (v, o, b) => compare(v, operand(o), b) < 0;
const isAtLeast: Test = (v, o, b) => compare(v, operand(o), b) >= 0;
const isAtMost: Test = (v, o, b) => compare(v, operand(o), b) <= 0;

const tests: Record<string, Test> = {
  boolean: (v) => typeof v === "boolean",
  callable: (v) => typeof v === "function",
  defined: (v) => !(v instanceof Undefined),
  divisibleby: (v, o) => integer(v) % integer(operand(o)) === 0,
  even: (v) => integer(v) % 2 === 0,
  odd: (v) => integer(v) % 2 !== 0,
  false: (v) => v === false,
  true: (v) => v === true,
  float: (v) => typeof v === "number" && !Number.isInteger(v),
  integer: (v) => typeof v === "number" && Number.isInteger(v),
  in: (v, o, b) => contains(operand(o), v, b),
  iterable: (v) => typeof v === "string" || Array.isArray(v) || v instanceof Map || v instanceof Undefined,
  lower: (v, _, b) => isCased(str(v, b), "islower", b),
  upper: (v, _, b) => isCased(str(v, b), "isupper", b),
  mapping: (v) => v instanceof Map,
  none: (v) => v === null,
  number: (v) => isNumeric(v),
  sameas: (v, o) => v === operand(o),
  sequence: (v) => typeof v === "string" || Array.isArray(v) || v instanceof Map,
  string: (v) => typeof v === "string",
  undefined: (v) => v instanceof Undefined,
  eq: isEqual,
  equalto: isEqual,
  "==": isEqual,
  ne: isUnequal,
  "!=": isUnequal,
  gt: isGreater,
  greaterthan: isGreater,
  ">": isGreater,
  lt: isLess,
  lessthan: isLess,
  "<": isLess,
  ge: isAtLeast,
  ">=": isAtLeast,
  le: isAtMost,
  "<=": isAtMost,
};

export function testValue(name: string, value: Value, operands: Value[], budget: Budget): boolean {
  const test = Object.hasOwn(tests, name) ? tests[name]! : fault(`No test named '${name}'.`);
  return test(value, operands, budget);
}
