// Models of real head widths and prompts beyond 512 tokens against what transformers computes of the same made weights
// (test/fixtures/seeded): step by step on the executor, and through the engine with others beside them; in f32 and in fast arithmetic.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { Model } from "../../lib/index.ts";
import { addon, deviceKind } from "../device.ts";
import { argmax, logSoftmax, repository } from "./models.ts";
import { NativeRun } from "./native-run.ts";

interface Prompt {
  name: string;
  input_ids: number[];
  /** Tokens whose logits are in `rows`. */
  columns: number[];
  rows: { position: number; largest: number; logits: number[]; sum: number }[];
  /** Of each prompt token but the first. */
  next_logprobs: number[];
  routing_gaps?: number[];
  greedy: number[];
  /** Between the best and the second logit, by greedy step. */
  greedy_gaps: number[];
  torch_bf16_error: number;
}
interface Fixture {
  seed: number;
  shape: Record<string, unknown>;
  prompts: Prompt[];
}

const folder = join(repository, "test/fixtures/seeded");
const fixtures = readdirSync(folder).map((file): Fixture & { name: string } => ({
  name: file.replace(".json.gz", ""),
  ...JSON.parse(gunzipSync(readFileSync(join(folder, file))).toString()),
}));

/**
 * Of a logit, relative to the largest one. Where experts are chosen, rounding decides between those that are close: what follows at such a
 * position is not compared, and what attention brings of it to the positions behind is allowed for.
 */
const bounds = { f32: 1e-4, fast: 2e-2 };
const boundsOfExperts = { f32: 1e-4, fast: 5e-2 };
const leastRoutingGap = { f32: 1e-4, fast: 0.25 };
type Numerics = keyof typeof bounds;
const contextLength = 1280;
/** How the prompts are cut: whole, and so that chunks begin and end beside the borders of blocks and tiles. */
const cuts = [[], [1, 64, 127, 384, 385, 513]];

const largestOf = ({ rows }: Prompt) => Math.max(...rows.map(({ largest }) => largest));
const isClear = ({ routing_gaps }: Prompt, position: number, numerics: Numerics) =>
  routing_gaps === undefined || routing_gaps[position]! > leastRoutingGap[numerics];
const boundOf = ({ routing_gaps }: Prompt, numerics: Numerics) => (routing_gaps ? boundsOfExperts : bounds)[numerics];

const worstOf = (errors: readonly number[]) =>
  errors.reduce((a, b) => (b <= a ? a : Number.isNaN(b) ? Infinity : b), 0);

/** The largest errors of a prompt's logits, and of log-probabilities (made of two logits each: half of it), relative. NaN is infinite. */
function worstError(prompt: Prompt, numerics: Numerics, logits: Float32Array): { rows: number; logprobs: number } {
  const count = prompt.input_ids.length;
  const vocabulary = logits.length / count;
  const row = (position: number) => logits.subarray(position * vocabulary, (position + 1) * vocabulary);
  const clearRows = prompt.rows.filter(({ position }) => isClear(prompt, position, numerics));
  const rows = clearRows.flatMap(({ position, largest, logits: wanted, sum }) => {
    const actual = row(position);
    const actualSum = actual[0]! - logSoftmax(actual)[0]!;
    return [...wanted.map((value, i) => value - actual[prompt.columns[i]!]!), sum - actualSum].map(
      (error) => Math.abs(error) / largest,
    );
  });
  const logprobs = logprobError(prompt, numerics, (at) => logSoftmax(row(at - 1))[prompt.input_ids[at]!]!);
  return { rows: worstOf(rows), logprobs };
}

/** `of`: the log-probability of the prompt's token at a position. */
function logprobError(prompt: Prompt, numerics: Numerics, of: (position: number) => number): number {
  const errors = prompt.next_logprobs.map((wanted, i) =>
    isClear(prompt, i, numerics) ? Math.abs(of(i + 1) - wanted) / 2 / largestOf(prompt) : 0,
  );
  return worstOf(errors);
}

/** Logits of all positions, computed in the given pieces. */
function forward(run: NativeRun, tokens: readonly number[], cut: readonly number[]): Float32Array {
  run.reset();
  const starts = [0, ...cut];
  const parts = starts.map((start, i) => run.forward(tokens.slice(start, starts[i + 1])));
  const all = new Float32Array(parts.reduce((sum, { length }) => sum + length, 0));
  parts.reduce((at, part) => {
    all.set(part, at);
    return at + part.length;
  }, 0);
  return all;
}

const hasAddon = addon() !== undefined;
const title = hasAddon ? "$name" : "$name (SKIPPED: the addon is not built)";
describe.skipIf(!hasAddon).each(fixtures)(title, ({ name, seed, shape, prompts }) => {
  const open = (numerics: Numerics) =>
    NativeRun.open(
      { shape, seed },
      { numerics, cacheDtype: numerics === "f32" ? "f32" : "bf16", maxStepTokens: 1100, contextLength },
    );

  test("logits of every position and greedy tokens, step by step", async () => {
    const runs = { f32: await open("f32"), fast: await open("fast") };
    const vocabulary = runs.f32.compiled.vocabularySize;
    for (const prompt of prompts) {
      const { input_ids, greedy, greedy_gaps } = prompt;
      const report: string[] = [];
      const logits: Record<Numerics, Float32Array> = { f32: new Float32Array(), fast: new Float32Array() };
      for (const numerics of ["f32", "fast"] as const) {
        for (const cut of cuts) {
          logits[numerics] = forward(runs[numerics], input_ids, cut);
          const { rows, logprobs } = worstError(prompt, numerics, logits[numerics]);
          report.push(`${numerics} ${rows.toExponential(1)}, ${logprobs.toExponential(1)}`);
          expect(rows, `${prompt.name}, ${numerics}, cut ${cut}`).toBeLessThan(boundOf(prompt, numerics));
          expect(logprobs, `${prompt.name}, ${numerics}, cut ${cut}`).toBeLessThan(boundOf(prompt, numerics));
        }
      }
      // Both are fed the same tokens; a gap under twice the error may turn the choice.
      const compared = { f32: 0, fast: 0 };
      for (const [i, token] of greedy.entries()) {
        const [wanted, row] = [logits.f32.subarray(-vocabulary), logits.fast.subarray(-vocabulary)];
        if (greedy_gaps[i]! >= 2 * bounds.f32 * largestOf(prompt)) {
          expect(argmax(wanted), `${prompt.name}, f32, step ${i}`).toBe(token);
          compared.f32++;
        }
        const error = wanted.reduce((most, value, k) => Math.max(most, Math.abs(value - row[k]!)), 0);
        if (greedy_gaps[i]! >= 2 * error) {
          expect(argmax(row), `${prompt.name}, fast, step ${i}`).toBe(token);
          compared.fast++;
        }
        for (const numerics of ["f32", "fast"] as const) logits[numerics] = runs[numerics].forward([token]);
      }
      console.info(
        `${name}, ${prompt.name}: ${report.join("; ")} (torch in bf16 ${prompt.torch_bf16_error}); greedy steps compared ${compared.f32}, ${compared.fast}`,
      );
      expect(compared.f32).toBeGreaterThan(0.9 * greedy.length);
      expect(compared.fast).toBeGreaterThan(0.25 * greedy.length);
    }
    for (const run of Object.values(runs)) run.close();
  });

  test.each(["f32", "fast"] as const)("through the engine, beside each other, in %s", async (numerics) => {
    await using model = await Model.load(
      { shape, seed },
      { device: deviceKind, numerics, contextLength, maxStepTokens: 200, maxSequences: 32, thread: "main" },
    );
    const wishes = prompts.flatMap((prompt) => [
      { prompt, options: { maxTokens: 1, promptLogprobs: 0 } },
      { prompt, options: { maxTokens: prompt.greedy.length } },
      { prompt, options: { maxTokens: prompt.greedy.length } }, // finds the other's blocks
    ]);
    const answers = await Promise.all(
      wishes.map(({ prompt, options }) => model.generate(prompt.input_ids, { ...options, ignoreEos: true })),
    );
    for (const [i, { tokens, promptLogprobs }] of answers.entries()) {
      const { prompt } = wishes[i]!;
      if (promptLogprobs) {
        const error = logprobError(prompt, numerics, (position) => promptLogprobs[position]!.logprob!);
        expect(error, prompt.name).toBeLessThan(boundOf(prompt, numerics));
      }
      const unsure = prompt.greedy_gaps.findIndex((gap) => gap < 2 * boundOf(prompt, numerics) * largestOf(prompt));
      const sure = Math.min(unsure < 0 ? prompt.greedy.length : unsure, tokens.length);
      expect(
        tokens.slice(0, sure).map(({ id }) => id),
        prompt.name,
      ).toEqual(prompt.greedy.slice(0, sure));
    }
  });
});
