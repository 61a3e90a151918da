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

function measure(name, file, threads) {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [fileURLToPath(import.meta.url), "child", name, file, String(threads)],
    { encoding: "utf8" },
  );
  if (status !== 0) throw new Error(`${name}: ${stderr}`);
  return JSON.parse(stdout.trim().split("\n").at(-1));
}

if (process.argv[2] === "child") await child(process.argv.slice(3));
else {
  const [file = fileURLToPath(new URL("../../models/demo/demo-q8_0.gguf", import.meta.url)), rounds = 5] = process.argv
    .slice(2)
    .filter((word) => !word.startsWith("--"));
  const all = os.availableParallelism();
  const variants = [...new Set([1, all])].flatMap((threads) => [
    { name: "inferx", threads },
    { name: "node-llama-cpp", threads },
  ]);
  const runs = variants.map(() => []);
  for (let i = 0; i < Number(rounds); i++)
    for (const [v, { name, threads }] of variants.entries()) runs[v].push(measure(name, file, threads));
  const figures = Object.keys(runs[0][0]);
  const medians = variants.map((variant, v) => ({
    ...variant,
    ...Object.fromEntries(figures.map((key) => [key, round(median(runs[v].map((run) => run[key])))])),
  }));
  const best = (name, key) => Math.max(...medians.filter((row) => row.name === name).map((row) => row[key]));
  const ratio = Object.fromEntries(
    figures.map((key) => [key, round(best("inferx", key) / best("node-llama-cpp", key))]),
  );
  report("peers-cpu", { file, rounds: Number(rounds), promptTokens, newTokens, medians, ratio });
}
