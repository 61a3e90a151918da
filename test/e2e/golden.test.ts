// Every golden fixture through graph, passes, plan and the native executor: those of the repository, and where it lies beside the
// repository the whole set (more architectures, longer prompts).
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { openModelSource } from "../../lib/compile/model-source.ts";
import { architectures } from "../../lib/models/index.ts";
import type { GoldenPrompt } from "./models.ts";
import { NativeRun } from "./native-run.ts";

/** Folders with what an independent implementation computes, of architectures that come with the package. */
function fixtures(root: string, file: string): { name: string; path: string; expected: string }[] {
  if (!existsSync(root)) return [];
  const known = new Set(architectures.flatMap((architecture) => architecture.names));
  return readdirSync(root)
    .map((name) => ({ name, path: join(root, name), expected: join(root, name, file) }))
    .filter(({ path, expected }) => {
      if (!existsSync(expected)) return false;
      const config = JSON.parse(readFileSync(join(path, "config.json"), "utf8"));
      return known.has(config.architectures?.[0]);
    });
}

const repository = fixtures(join(import.meta.dirname, "../fixtures/golden"), "expected.json.gz");
const shared = fixtures(join(import.meta.dirname, "../../../shared/golden"), "expected.json");

function relativeError(actual: ArrayLike<number>, wanted: readonly number[]): number {
  let worst = 0;
  let largest = 1;
  for (let i = 0; i < wanted.length; i++) {
    worst = Math.max(worst, Math.abs(actual[i]! - wanted[i]!));
    largest = Math.max(largest, Math.abs(wanted[i]!));
  }
  return Number.isNaN(worst) ? Number.POSITIVE_INFINITY : worst / largest;
}

function argmax(values: Float32Array): number {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i]! > values[best]!) best = i;
  return best;
}

describe.skipIf(shared.length > 0)("the whole set", () => {
  test.skip("SKIPPED: ../shared/golden is not there");
});

const all = [...repository, ...shared.map((fixture) => ({ ...fixture, name: `shared ${fixture.name}` }))];
describe.each(all)("$name", ({ path, expected }) => {
  const bytes = readFileSync(expected);
  const { prompts } = JSON.parse((expected.endsWith(".gz") ? gunzipSync(bytes) : bytes).toString()) as {
    prompts: GoldenPrompt[];
  };

  test("logits within 1e-4 and the same greedy continuation in f32", async () => {
    const run = await NativeRun.open(path);
    const { longRopeAfter } = openModelSource(path);
    for (const prompt of prompts) {
      run.reset();
      const ropeRow = prompt.input_ids.length > longRopeAfter ? 1 : 0;
      const logits = run.forward(prompt.input_ids, ropeRow);
      const vocabulary = logits.length / prompt.input_ids.length;
      const row = (position: number) => logits.subarray(position * vocabulary, (position + 1) * vocabulary);
      expect(relativeError(row(prompt.input_ids.length - 1), prompt.last_logits), prompt.name).toBeLessThan(1e-4);
      for (const [position, wanted] of Object.entries(prompt.mid_logits)) {
        expect(relativeError(row(Number(position)), wanted), `${prompt.name} at ${position}`).toBeLessThan(1e-4);
      }
      let next = argmax(row(prompt.input_ids.length - 1));
      const greedy: number[] = [];
      while (greedy.length < prompt.greedy.length) {
        greedy.push(next);
        next = argmax(run.forward([next], ropeRow));
      }
      expect(greedy, prompt.name).toEqual(prompt.greedy);
    }
    run.close();
  });
});
