// Checks of numbers, strings and choices that callers pass in. Each throws IX_INVALID_ARGUMENT naming the option.
import { InferxError } from "./errors.ts";

function refuse(name: string, value: unknown, wanted: string): never {
  const shown =
    typeof value === "string"
      ? JSON.stringify(value)
      : Array.isArray(value)
        ? "an array"
        : typeof value === "object" && value !== null
          ? "an object"
          : String(value);
  throw new InferxError("IX_INVALID_ARGUMENT", `${name} must be ${wanted}, got ${shown}`, { option: name });
}

/** An integer within [min, max]. */
export function checkInt(name: string, value: unknown, min: number, max = Number.MAX_SAFE_INTEGER): number {
  if (typeof value !== "number" || !Number.isInteger(value) || value < min || value > max) {
    refuse(
      name,
      value,
      max === Number.MAX_SAFE_INTEGER ? `an integer of at least ${min}` : `an integer from ${min} to ${max}`,
    );
  }
  return value;
}

/** A finite number within [min, max]. */
export function checkNumber(name: string, value: unknown, min = -Number.MAX_VALUE, max = Number.MAX_VALUE): number {
  if (typeof value !== "number" || !Number.isFinite(value) || value < min || value > max) {
    const below = max === Number.MAX_VALUE ? "" : ` of at most ${max}`;
    refuse(
      name,
      value,
      min === -Number.MAX_VALUE
        ? `a finite number${below}`
        : below === ""
          ? `a finite number of at least ${min}`
          : `a number from ${min} to ${max}`,
    );
  }
  return value;
}

export function checkBoolean(name: string, value: unknown): boolean {
  if (typeof value !== "boolean") refuse(name, value, "true or false");
  return value;
}

export function checkString(name: string, value: unknown): string {
  if (typeof value !== "string") refuse(name, value, "a string");
  return value;
}

export function checkChoice<T extends string>(name: string, value: unknown, choices: readonly T[]): T {
  if (typeof value !== "string" || !choices.includes(value as T)) refuse(name, value, `one of ${choices.join(", ")}`);
  return value as T;
}

export function checkArray(name: string, value: unknown): void {
  if (!Array.isArray(value)) refuse(name, value, "an array");
}

export function checkFunction(name: string, value: unknown): void {
  if (typeof value !== "function") refuse(name, value, "a function");
}

export function checkSignal(name: string, value: unknown): void {
  if (!(value instanceof AbortSignal)) refuse(name, value, "an AbortSignal");
}

export function checkObject(name: string, value: unknown): void {
  if (typeof value !== "object" || value === null || Array.isArray(value)) refuse(name, value, "an object");
}

/** Refuses what is no object, and keys that no option has: a misspelt option must not be ignored in silence. */
export function checkKeys(name: string, value: object, known: readonly string[]): void {
  checkObject(`the options of ${name}`, value);
  for (const key of Object.keys(value)) {
    if (!known.includes(key)) {
      throw new InferxError("IX_INVALID_ARGUMENT", `${name} has no option "${key}"; it knows ${known.join(", ")}`, {
        option: key,
      });
    }
  }
}
