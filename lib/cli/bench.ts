// `inferx bench`: tokens a second, time to the first token and gaps between tokens, at several numbers of requests at once.
import { type Command, InvalidArgumentError } from "commander";
import type { Model } from "../index.ts";
import { addModelOptions, loadModel, type ModelFlags } from "./options.ts";

interface BenchFlags extends ModelFlags {
  requests: number[];
  promptTokens: number;
  maxTokens: number;
  json?: boolean;
}

/** Milliseconds; p50 and p99 over all requests of one run. */
export interface BenchRow {
  requests: number;
  generatedTokens: number;
  seconds: number;
  /** Generated tokens of all requests, over the time from the first call to the last answer. */
  tokensPerSecond: number;
  firstTokenMs: { p50: number; p99: number };
  gapMs: { p50: number; p99: number };
}

function parseCount(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1) throw new InvalidArgumentError("It is not a whole number above 0.");
  return value;
}

export function addBenchCommand(program: Command): void {
  addModelOptions(program.command("bench").description("measure speed with the given numbers of requests at once"))
    .option("--requests <list>", "numbers of requests at once", (list) => list.split(",").map(parseCount), [1, 8, 32])
    .option("--prompt-tokens <n>", "length of each prompt", parseCount, 64)
    .option("-n, --max-tokens <n>", "length of each answer", parseCount, 128)
    .option("--json", "print one JSON object")
    .action(bench);
}

async function bench(flags: BenchFlags): Promise<void> {
  await using model = await loadModel(flags);
  await measure(model, 1, flags.promptTokens, 16); // first touch of memory, not counted
  const rows: BenchRow[] = [];
  for (const requests of flags.requests) {
    const row = await measure(model, requests, flags.promptTokens, flags.maxTokens);
    rows.push(row);
    if (!flags.json) {
      if (rows.length === 1)
        process.stdout.write(
          `${"requests".padEnd(10)}${"tokens/s".padStart(10)}${"first token".padStart(22)}${"gap".padStart(22)}\n`,
        );
      process.stdout.write(textRow(row));
    }
  }
  const { path, device, numerics } = model.info;
  const { hostMicrosPerStep } = await model.stats();
  if (flags.json) {
    process.stdout.write(`${JSON.stringify({ model: path, device, numerics, hostMicrosPerStep, rows }, null, 2)}\n`);
  } else
    process.stdout.write(
      `\n${device.name}, ${device.threads} threads, ${numerics}; ${hostMicrosPerStep.toFixed(0)} µs of TypeScript per step\n`,
    );
}

function textRow({ requests, tokensPerSecond, firstTokenMs, gapMs }: BenchRow): string {
  const pair = ({ p50, p99 }: { p50: number; p99: number }) => `${p50.toFixed(1)} / ${p99.toFixed(1)} ms`.padStart(22);
  return `${String(requests).padEnd(10)}${tokensPerSecond.toFixed(1).padStart(10)}${pair(firstTokenMs)}${pair(gapMs)}\n`;
}

async function measure(model: Model, requests: number, promptTokens: number, maxTokens: number): Promise<BenchRow> {
  const firsts: number[] = [];
  const gaps: number[] = [];
  let generatedTokens = 0;
  const start = performance.now();
  const one = async (index: number): Promise<void> => {
    let last = performance.now();
    let first = true;
    for await (const { tokens } of model.generate(promptOf(model, index, promptTokens), {
      maxTokens,
      ignoreEos: true,
      temperature: 0,
    })) {
      const now = performance.now();
      if (first) firsts.push(now - last);
      // Tokens of one step arrive together: the gap belongs to the step, shared by its tokens.
      else for (const _ of tokens) gaps.push((now - last) / tokens.length);
      first = false;
      last = now;
      generatedTokens += tokens.length;
    }
  };
  await Promise.all(Array.from({ length: requests }, (_, index) => one(index)));
  const seconds = (performance.now() - start) / 1000;
  return {
    requests,
    generatedTokens,
    seconds,
    tokensPerSecond: generatedTokens / seconds,
    firstTokenMs: percentiles(firsts),
    gapMs: percentiles(gaps),
  };
}

/** Token ids that differ from request to request, so that no prefix is shared. */
function promptOf(model: Model, index: number, length: number): number[] {
  const { vocabularySize } = model.info;
  const reserved = Math.min(256, vocabularySize >> 1); // special tokens usually come first
  return Array.from({ length }, (_, i) => reserved + ((index * 7919 + i * 104_729 + 17) % (vocabularySize - reserved)));
}

function percentiles(values: number[]): { p50: number; p99: number } {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (share: number) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0;
  return { p50: at(0.5), p99: at(0.99) };
}
