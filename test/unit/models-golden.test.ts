// Every architecture against the numbers of an independent implementation, through the reference interpreter, from both layouts
// of config.json. The fixtures of the repository always run; the full set (longer prompts, more architectures) where it is present.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gunzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { normaliseHfConfig } from "../../lib/formats/hf-config.ts";
import { architectures } from "../../lib/models/index.ts";
import { load, run } from "./models-interpret.ts";

interface Prompt {
  name: string;
  input_ids: number[];
  last_logits: number[];
  mid_logits: Record<string, number[]>;
  argmax: number[];
  greedy: number[];
  hidden_last_first8: { final_norm: number[] };
}

interface Expected {
  architecture?: string;
  prompts: Prompt[];
}

function readExpected(folder: string): Expected {
  const packed = join(folder, "expected.json.gz");
  const text = existsSync(packed) ? gunzipSync(readFileSync(packed)) : readFileSync(join(folder, "expected.json"));
  return JSON.parse(text.toString());
}

/** Largest difference, relative to the largest wanted value or 1. */
function relativeError(got: ArrayLike<number>, wanted: readonly number[]): number {
  const largest = wanted.reduce((a, w) => Math.max(a, Math.abs(w)), 1);
  return wanted.reduce((worst, w, i) => Math.max(worst, Math.abs(w - (got[i] ?? Number.NaN)) / largest), 0);
}

function argmax(values: ArrayLike<number>): number {
  return Array.from(values).reduce((best, v, i, all) => (v > all[best]! ? i : best), 0);
}

function checkFolder(folder: string): void {
  const { prompts } = readExpected(folder);
  for (const file of ["config.json", "config.v5.json"].filter((name) => existsSync(join(folder, name)))) {
    test(file, () => {
      const model = load(folder, normaliseHfConfig(JSON.parse(readFileSync(join(folder, file), "utf8"))));
      for (const prompt of prompts) {
        const last = prompt.input_ids.length - 1;
        const every = prompt.input_ids.map((_, row) => row);
        const get = run(model, prompt.input_ids, every);
        for (const [row, wanted] of [[last, prompt.last_logits] as const, ...Object.entries(prompt.mid_logits)]) {
          expect(wanted.length).toBe(get("logits", Number(row)).length);
          expect(relativeError(get("logits", Number(row)), wanted), `${prompt.name}, row ${row}`).toBeLessThan(1e-5);
        }
        expect(every.map((row) => argmax(get("logits", row)))).toEqual(prompt.argmax);
        expect(relativeError(get("hidden", last), prompt.hidden_last_first8.final_norm)).toBeLessThan(1e-5);
      }
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

const fixtures = fileURLToPath(new URL("../fixtures/golden", import.meta.url));
const names = readdirSync(fixtures, { withFileTypes: true }).filter((entry) => entry.isDirectory());
for (const { name } of names) describe(`golden ${name}`, () => checkFolder(join(fixtures, name)));

const shared = fileURLToPath(new URL("../../../shared/golden", import.meta.url));
describe("full golden set", () => {
  if (!existsSync(shared)) {
    test.skip(`skipped: there is no ${shared}; only the fixtures of the repository were tested`, () => {});
    return;
  }
  const known = new Set(architectures.flatMap((a) => a.names));
  for (const { name } of readdirSync(shared, { withFileTypes: true }).filter((entry) => entry.isDirectory())) {
    const folder = join(shared, name);
    if (!existsSync(join(folder, "expected.json"))) continue;
    const { architecture } = readExpected(folder);
    if (architecture !== undefined && known.has(architecture)) describe(name, () => checkFolder(folder));
  }
});
