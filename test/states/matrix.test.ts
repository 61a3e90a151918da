// Every public method in every awkward state. The rows come from the public types: a method without a row fails, and so
// does a row without a method.
import { describe, expect, test } from "vitest";
import { calls } from "./calls.mjs";
import { cells } from "./cells.ts";
import { conditions, states } from "./conditions.ts";
import { publicMethods } from "./public-methods.ts";

const methods = publicMethods(["Model", "KVCache", "Scheduler", "Generation"]);

test("every public method has a row of the matrix and a call, and there are no others", () => {
  expect(methods.length).toBeGreaterThan(20);
  expect(Object.keys(cells).sort()).toEqual([...methods].sort());
  expect(Object.keys(calls).sort()).toEqual([...methods].sort());
});

test.each(Object.entries(cells))("%s has a cell for every state", (_, row) => {
  expect(Object.keys(row).sort()).toEqual([...states].sort());
  for (const cell of Object.values(row)) if (typeof cell !== "function") expect(cell.reason).toMatch(/\w+ \w+/);
});

describe.each(states)("%s", (state) => {
  const rows = Object.entries(cells).flatMap(([name, row]) => {
    const cell = row[state];
    return typeof cell === "function" ? [[name, cell] as const] : [];
  });
  test.each(rows)("%s", async (name, cell) => {
    await cell(name, conditions[state]);
  });
});
