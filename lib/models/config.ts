// The typed keys of a model configuration: what an architecture declares it reads, and the check that it is there and sane.
// Not here: renaming keys of other layouts (lib/formats normalises those first).
import { InferxError } from "../base/errors.ts";

/** Throws IX_MODEL_CONFIG naming the key, the value and what was expected. */
export function refuseConfig(key: string, value: unknown, wanted: string): never {
  const shown = (JSON.stringify(value) ?? String(value)).slice(0, 80);
  throw new InferxError("IX_MODEL_CONFIG", `config key "${key}" must be ${wanted}, got ${shown}`, {
    key,
    value,
    wanted,
  });
}

/** One key: how its value is checked, and what stands for it when it is absent. JSON's null counts as absent. */
export class Key<T> {
  readonly wanted: string;
  /** The checked value, or undefined when it is not what is wanted. */
  readonly #parse: (value: unknown, name: string) => T | undefined;
  readonly #absent: (name: string) => T;

  constructor(wanted: string, parse: (value: unknown, name: string) => T | undefined, absent?: (name: string) => T) {
    this.wanted = wanted;
    this.#parse = parse;
    this.#absent = absent ?? ((name) => refuseConfig(name, undefined, wanted));
  }

  /** The key may be absent: undefined then. */
  get optional(): Key<T | undefined> {
    return new Key<T | undefined>(this.wanted, this.#parse, () => undefined);
  }

  /** The value that stands for an absent key. */
  default(value: T): Key<T> {
    return new Key(this.wanted, this.#parse, () => value);
  }

  /** Errors: IX_MODEL_CONFIG. */
  read(value: unknown, name: string): T {
    if (value === undefined || value === null) return this.#absent(name);
    return this.#parse(value, name) ?? refuseConfig(name, value, this.wanted);
  }
}

const maxInt = 2 ** 31 - 1;

/** An integer within [min, max]. */
export function intWithin(min: number, max = maxInt): Key<number> {
  const wanted = max === maxInt ? `an integer of at least ${min}` : `an integer from ${min} to ${max}`;
  return new Key(wanted, (v) =>
    Number.isInteger(v) && (v as number) >= min && (v as number) <= max ? (v as number) : undefined,
  );
}

/** A count: an integer of at least 1. */
export const int = intWithin(1);
/** A number above 0 that float32 can hold. */
export const float = new Key("a number above 0", (v) =>
  typeof v === "number" && v > 1e-37 && v < 1e37 ? v : undefined,
);
export const bool = new Key("true or false", (v) => (typeof v === "boolean" ? v : undefined));
export const string = new Key("a string", (v) => (typeof v === "string" ? v : undefined));

/** A list whose items are all of one kind. */
export function list<T>(item: Key<T>): Key<T[]> {
  return new Key(`a list, each item ${item.wanted}`, (value, name) =>
    Array.isArray(value) ? value.map((v, i) => item.read(v, `${name}[${i}]`)) : undefined,
  );
}

export type Keys = Record<string, Key<unknown>>;
/** The values that a set of keys yields. */
export type Values<K extends Keys> = { [Name in keyof K]: K[Name] extends Key<infer T> ? T : never };

/** An object with keys of its own. */
export function record<K extends Keys>(keys: K): Key<Values<K>> {
  return new Key("an object", (value, name) =>
    typeof value === "object" && !Array.isArray(value) ? readKeys(keys, value as object, `${name}.`) : undefined,
  );
}

/** Reads the declared keys of a configuration; other keys are ignored. Errors: IX_MODEL_CONFIG. */
export function readKeys<K extends Keys>(keys: K, config: object, prefix = ""): Values<K> {
  const values = Object.entries(keys).map(([name, key]) => {
    return [
      name,
      key.read(Object.hasOwn(config, name) ? (config as Record<string, unknown>)[name] : undefined, prefix + name),
    ];
  });
  return Object.fromEntries(values) as Values<K>;
}
