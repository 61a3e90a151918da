// inferx against node-llama-cpp on the CPU: the same GGUF file, the same token ids, greedy, alternating, a process per run.
//
//   node bench/peers/cpu.mjs [model.gguf] [rounds] [--save]
import { spawnSync } from "node:child_process";
import os from "node:os";
import { fileURLToPath } from "node:url";
import { median, report, round } from "../report.mjs";

const promptTokens = 256;
const newTokens = 128;
const prompt = (index) => Array.from({ length: promptTokens }, (_, i) => 300 + ((i * 7919 + index * 104_729) % 3000));

async function inferx(file, threads) {
  const { Model } = await import("../../dist/index.mjs");
  const model = await Model.load(file, { threads, contextLength: 1024 });
  const options = { maxTokens: newTokens, ignoreEos: true, temperature: 0 };
  const one = async (index) => {
    const start = performance.now();
    let first = 0;
    let tokens = 0;
    for await (const chunk of model.generate(prompt(index), options)) {
      first ||= performance.now();
      tokens += chunk.tokens.length;
    }
    return { promptSeconds: (first - start) / 1000, decodeSeconds: (performance.now() - first) / 1000, tokens };
  };
  return { one, end: () => model.dispose() };
}

async function llama(file, threads) {
  const { getLlama, LlamaLogLevel } = await import("node-llama-cpp");
  const engine = await getLlama({ gpu: false, maxThreads: threads, logLevel: LlamaLogLevel.error });
  const model = await engine.loadModel({ modelPath: file });
  const context = await model.createContext({ contextSize: 1024, sequences: 8, threads, batchSize: 512 });
  const one = async (index) => {
    const sequence = context.getSequence();
    const start = performance.now();
    let first = 0;
    let tokens = 0;
    for await (const _ of sequence.evaluate(prompt(index), { temperature: 0, yieldEogToken: true })) {
      first ||= performance.now();
      if (++tokens === newTokens) break;
    }
    const measured = {
      promptSeconds: (first - start) / 1000,
      decodeSeconds: (performance.now() - first) / 1000,
      tokens,
    };
    sequence.dispose();
    return measured;
  };
  return { one, end: () => engine.dispose() };
}

async function child([name, file, threads]) {
  const { one, end } = await (name === "inferx" ? inferx : llama)(file, Number(threads));
  await one(100); // first touch of memory
  const alone = await one(0);
  const start = performance.now();
  const eight = await Promise.all(Array.from({ length: 8 }, (_, i) => one(i + 1)));
  const seconds = (performance.now() - start) / 1000;
  const tokens = eight.reduce((sum, run) => sum + run.tokens, 0);
  const figures = {
    promptTokensPerSecond: promptTokens / alone.promptSeconds,
    decodeTokensPerSecond: (alone.tokens - 1) / alone.decodeSeconds,
    eightTogetherTokensPerSecond: tokens / seconds,
  };
  process.stdout.write(`\n${JSON.stringify(figures)}\n`);
  await end();
}

/** Figures of one run; undefined when it took longer than a minute and a half (a spinning pool on busy cores can collapse). */
function measure({ name, threads }, file) {
  const args = [fileURLToPath(import.meta.url), "child", name, file, String(threads)];
  const { status, stdout, stderr, error } = spawnSync(process.execPath, args, {
    encoding: "utf8",
    timeout: 90_000,
    killSignal: "SIGKILL",
  });
  if (error?.code === "ETIMEDOUT") return undefined;
  if (status !== 0) throw new Error(`${name}: ${stderr}`);
  return JSON.parse(stdout.trim().split("\n").at(-1));
}

function medianOf(runs) {
  return Object.fromEntries(Object.keys(runs[0]).map((key) => [key, round(median(runs.map((run) => run[key])))]));
}

if (process.argv[2] === "child") await child(process.argv.slice(3));
else {
  const words = process.argv.slice(2).filter((word) => !word.startsWith("--"));
  const [file = fileURLToPath(new URL("../../models/demo/demo-q8_0.gguf", import.meta.url)), rounds = 5] = words;
  const variants = [...new Set([1, os.availableParallelism()])].flatMap((threads) => [
    { name: "inferx", threads, runs: [] },
    { name: "node-llama-cpp", threads, runs: [] },
  ]);
  for (let i = 0; i < Number(rounds); i++) {
    for (const variant of variants) {
      if (variant.timedOut) continue;
      const figures = measure(variant, file);
      if (figures) variant.runs.push(figures);
      else variant.timedOut = true;
    }
  }
  const medians = variants.map(({ name, threads, runs, timedOut }) => ({
    name,
    threads,
    ...(timedOut ? { timedOut } : medianOf(runs)),
  }));
  const best = (name, key) =>
    Math.max(...medians.filter((row) => row.name === name && !row.timedOut).map((row) => row[key]));
  const keys = ["promptTokensPerSecond", "decodeTokensPerSecond", "eightTogetherTokensPerSecond"];
  const ratio = Object.fromEntries(keys.map((key) => [key, round(best("inferx", key) / best("node-llama-cpp", key))]));
  report("peers-cpu", { file, rounds: Number(rounds), promptTokens, newTokens, medians, ratio });
}
