// Every golden fixture through graph, passes, plan and the native executor.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { NativeRun } from "./native-run.ts";

interface Prompt {
  name: string;
  input_ids: number[];
  last_logits: number[];
  mid_logits: Record<string, number[]>;
  greedy: number[];
  greedy_min_margin: number;
}

const root = join(import.meta.dirname, "../fixtures/golden");
const names = readdirSync(root, { withFileTypes: true })
  .filter((e) => e.isDirectory())
  .map((e) => e.name);

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

describe.each(names.filter((name) => existsSync(join(root, name, "expected.json.gz"))))("%s", (name) => {
  const { prompts } = JSON.parse(gunzipSync(readFileSync(join(root, name, "expected.json.gz"))).toString()) as {
    prompts: Prompt[];
  };

  test("logits within 1e-4 and the same greedy continuation in f32", async () => {
    const run = await NativeRun.open(join(root, name));
    for (const prompt of prompts) {
      run.reset();
      const ropeRow = name.startsWith("phi3") && prompt.input_ids.length > 96 ? 1 : 0;
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
