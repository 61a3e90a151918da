// Stands in for vitest where only node runs: what the kernel and golden tests use of it. A failure is printed with its test's name; the
// exit code is 1 if there was one. The first argument, a regular expression, chooses tests.
import { isDeepStrictEqual } from "node:util";

type Body = () => unknown;
interface Test {
  name: string;
  body: Body;
  hooks: Hooks[];
}
interface Hooks {
  before: Body[];
  after: Body[];
}

const tests: Test[] = [];
const root: Hooks = { before: [], after: [] };
let [path, hooks]: [string[], Hooks[]] = [[], [root]];

const named = (title: string, values: readonly unknown[]) =>
  values
    .reduce<string>((t, v) => t.replace("%s", String(v)), title)
    .replace(/\$(\w+)/g, (_, key) => String((values[0] as Record<string, unknown>)[key]));
function add(title: string, body: Body): void {
  tests.push({ name: [...path, title].join(" > "), body, hooks });
}
function group(title: string, body: Body): void {
  const outer = [path, hooks] as const;
  [path, hooks] = [
    [...path, title],
    [...hooks, { before: [], after: [] }],
  ];
  body();
  [path, hooks] = [...outer];
}
const skipped = Object.assign(() => {}, { each: () => () => {} });
function withVariants(run: (title: string, body: Body) => void) {
  const each =
    (rows: readonly unknown[]) =>
    (title: string, body: (...values: never[]) => unknown): void => {
      for (const row of rows) {
        const values = (Array.isArray(row) ? row : [row]) as never[];
        run(named(title, values), () => body(...values));
      }
    };
  const skipIf = (condition: unknown) => (condition ? skipped : Object.assign(run, { each }));
  const skip = (title: string) => console.log(title);
  return Object.assign(run, { each, skipIf, skip });
}
export const it = withVariants(add);
export const test = it;
export const describe = withVariants(group);
export const beforeAll = (body: Body) => hooks.at(-1)!.before.push(body);
export const afterAll = (body: Body) => hooks.at(-1)!.after.push(body);

/** What matches in part: a function, so that it can stand for a value. */
type Matcher = (actual: unknown) => boolean;
const matches = (actual: unknown, expected: unknown) =>
  typeof expected === "function" ? (expected as Matcher)(actual) : isDeepStrictEqual(actual, expected);
expect.stringMatching = (pattern: RegExp): Matcher => {
  return (actual) => pattern.test(String(actual));
};
expect.objectContaining = (wanted: Record<string, unknown>): Matcher => {
  return (actual) =>
    Object.entries(wanted).every(([key, value]) =>
      matches((actual as Record<string, unknown> | undefined)?.[key], value),
    );
};
function errorOf(call: unknown): unknown {
  try {
    (call as () => unknown)();
  } catch (error) {
    return error;
  }
  return undefined;
}

export function expect(actual: unknown, what = "") {
  const require = (holds: boolean, wanted: string, expected: unknown) => {
    if (holds) return;
    const text = (value: unknown) => (JSON.stringify(value) ?? String(value)).slice(0, 300);
    throw new Error(`${what} ${text(actual)} ${wanted} ${text(expected)}`);
  };
  const number = actual as number;
  return {
    toBe: (expected: unknown) => require(Object.is(actual, expected), "is not", expected),
    toEqual: (expected: unknown) => require(isDeepStrictEqual(actual, expected), "does not equal", expected),
    toMatch: (pattern: RegExp) => require(pattern.test(String(actual)), "does not match", String(pattern)),
    toThrow: (expected: Matcher) => {
      const error = errorOf(actual);
      require(expected(error), `throws ${error}, not`, expected);
    },
    toBeLessThan: (limit: number) => require(number < limit, "is not below", limit),
    toBeLessThanOrEqual: (limit: number) => require(number <= limit, "is above", limit),
    toBeGreaterThan: (limit: number) => require(number > limit, "is not above", limit),
    toHaveLength: (length: number) => require((actual as unknown[]).length === length, "has not the length", length),
  };
}

// Test files are imported before this runs.
setImmediate(async () => {
  const chosen = tests.filter(({ name }) => new RegExp(process.argv[2] ?? "").test(name));
  const started = new Set<Hooks>();
  let failed = 0;
  for (const { name, body, hooks } of chosen) {
    try {
      for (const h of hooks) {
        if (started.has(h)) continue;
        started.add(h);
        for (const before of h.before) await before();
      }
      await body();
    } catch (error) {
      failed++;
      console.log(`FAILED ${name}: ${String((error as Error)?.message ?? error).slice(0, 500)}`);
    }
  }
  for (const h of started) for (const after of h.after) await after();
  console.log(
    `${chosen.length - failed} of ${chosen.length} tests passed (device ${process.env.INFERX_TEST_DEVICE ?? "cpu"})`,
  );
  process.exitCode = failed > 0 ? 1 : 0;
});
