// Every architecture against the numbers of an independent implementation, through the reference interpreter, from both layouts
// of config.json. The fixtures of the repository always run; more architectures, file formats and (with INFERX_GOLDEN=full)
// longer prompts where the full set is present.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gunzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { normaliseHfConfig } from "../../lib/formats/hf-config.ts";
import { architectures } from "../../lib/models/index.ts";
import { type Loaded, load, run } from "./models-interpret.ts";

interface Prompt {
  name: string;
  input_ids: number[];
  last_logits: number[];
  mid_logits?: Record<string, number[]>;
  argmax: number[];
  greedy: number[];
  hidden_last_first8?: { final_norm: number[] };
}

interface Expected {
  architecture: string;
  prompts: Prompt[];
}

function readExpected(path: string, maxTokens: number): Expected {
  const bytes = existsSync(`${path}.gz`) ? gunzipSync(readFileSync(`${path}.gz`)) : readFileSync(path);
  const expected: Expected = JSON.parse(bytes.toString());
  return { ...expected, prompts: expected.prompts.filter((prompt) => prompt.input_ids.length <= maxTokens) };
}

/** Largest difference, relative to the largest wanted value or 1. */
function relativeError(got: ArrayLike<number>, wanted: readonly number[]): number {
  const largest = wanted.reduce((a, w) => Math.max(a, Math.abs(w)), 1);
  return wanted.reduce((worst, w, i) => Math.max(worst, Math.abs(w - (got[i] ?? Number.NaN)) / largest), 0);
}

function argmax(values: ArrayLike<number>): number {
  return Array.from(values).reduce((best, v, i, all) => (v > all[best]! ? i : best), 0);
}

/** Ten times stricter than what is asked of kernels: interpreter and reference differ in the order of sums only. */
const tolerance = 1e-5;

function checkPrompts(model: Loaded, prompts: readonly Prompt[]): void {
  expect(prompts.length).toBeGreaterThan(0);
  for (const { name, input_ids, last_logits, mid_logits = {}, argmax: best, hidden_last_first8: hidden } of prompts) {
    const last = input_ids.length - 1;
    const rows = input_ids.map((_, row) => row);
    const get = run(model, input_ids, rows);
    for (const [row, wanted] of [[last, last_logits] as const, ...Object.entries(mid_logits)]) {
      expect(get("logits", Number(row)).length).toBe(wanted.length);
      expect(relativeError(get("logits", Number(row)), wanted), `${name}, row ${row}`).toBeLessThan(tolerance);
    }
    expect(rows.map((row) => argmax(get("logits", row)))).toEqual(best);
    if (hidden) expect(relativeError(get("hidden", last), hidden.final_norm)).toBeLessThan(tolerance);
  }
}

function checkFolder(folder: string, maxTokens = Number.POSITIVE_INFINITY): void {
  const { prompts } = readExpected(join(folder, "expected.json"), maxTokens);
  for (const file of ["config.json", "config.v5.json"].filter((name) => existsSync(join(folder, name)))) {
    test(file, () => {
      const config = normaliseHfConfig(JSON.parse(readFileSync(join(folder, file), "utf8")));
      checkPrompts(load(folder, config), prompts);
    });
  }
  test("the greedy continuation, with the cache, in steps of several tokens and one", () => {
    const model = load(folder);
    const { input_ids, greedy } = prompts[0]!;
    const ids = [...input_ids, ...greedy];
    const rows = greedy.map((_, i) => input_ids.length - 1 + i);
    for (const stepTokens of [7, 1]) {
      const get = run(model, ids, rows, stepTokens);
      expect(rows.map((row) => argmax(get("logits", row)))).toEqual(greedy);
    }
  });
}

const folders = (path: string) =>
  readdirSync(path, { withFileTypes: true }).flatMap((entry) => (entry.isDirectory() ? [entry.name] : []));

const fixtures = fileURLToPath(new URL("../fixtures/golden", import.meta.url));
const fixtureNames = folders(fixtures);
for (const name of fixtureNames) describe(`golden ${name}`, () => checkFolder(join(fixtures, name)));

const shared = fileURLToPath(new URL("../../../shared/golden", import.meta.url));
if (existsSync(shared)) {
  const known = new Set(architectures.flatMap((a) => a.names));
  const isFull = process.env.INFERX_GOLDEN === "full";
  const maxTokens = isFull ? Number.POSITIVE_INFINITY : 60;
  for (const name of folders(shared).filter((folder) => isFull || !fixtureNames.includes(folder))) {
    const expected = join(shared, name, "expected.json");
    if (existsSync(expected) && known.has(readExpected(expected, 0).architecture)) {
      describe(`full golden set, ${name}`, () => checkFolder(join(shared, name), maxTokens));
    }
  }
  describe("formats", () => {
    const formats = join(shared, "formats");
    const plain = folders(formats).filter((name) => /_(bf16|fp16|sharded)$/.test(name));
    test.each(plain)("%s", (name) => {
      const { prompts } = readExpected(join(formats, name, "expected.json"), maxTokens);
      checkPrompts(load(join(formats, name)), prompts);
    });
    const files = readdirSync(join(formats, "gguf")).filter((name) => name.endsWith(".gguf"));
    test.each(files)("%s", (name) => {
      const path = join(formats, "gguf", name);
      checkPrompts(load(path), readExpected(path.replace(/gguf$/, "expected.json"), maxTokens).prompts);
    });
  });
} else {
  test.skip(`skipped: there is no ${shared}, so only the fixtures of the repository were tested`, () => {});
}
