// The whole engine on one GPU, through the public API: an 8B Llama shape with random weights in bf16, prompts of token ids.
// Prints tokens a second beside what the roofline allows, and latencies under a mixed load; writes everything as JSON.
//
//   node bench/gpu/engine-8b.mjs [--dist dist] [--out results.json] [--only prompt,decode,mixed] [--batches 1,8] [--options '{…}']
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { shapes } from "./shapes.mjs";

const { values: args } = parseArgs({
  options: {
    dist: { type: "string", default: "dist" },
    out: { type: "string" },
    only: { type: "string", default: "prompt,decode,mixed" },
    batches: { type: "string", default: "1,8,32,64,128,256" },
    options: { type: "string", default: "{}" },
    shape: { type: "string", default: "8b" },
    device: { type: "string", default: "cuda" },
  },
});
const parts = args.only.split(",");
const { Model } = await import(pathToFileURL(join(resolve(args.dist), "index.mjs")).href);

const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];
const percentile = (values, p) =>
  [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * p))];

const started = performance.now();
const model = await Model.load(
  { shape: { ...shapes[args.shape], max_position_embeddings: 16384 }, seed: 1 },
  { device: args.device, contextLength: 16384, ...JSON.parse(args.options) },
);
const { device, vocabularySize, weightBytes, cacheBytes } = model.info;
const query = ["--query-gpu=driver_version", "--format=csv,noheader"];
const driver = device.kind === "cuda" ? execFileSync("nvidia-smi", query).toString().split("\n")[0] : "";
const results = {
  card: device.name,
  driver,
  date: new Date().toISOString().slice(0, 10),
  inferx: JSON.parse(readFileSync(new URL("../../package.json", import.meta.url))).version,
  node: process.version,
  model: `${args.shape}: Llama shape, bf16, random weights`,
  loadSeconds: (performance.now() - started) / 1000,
  prompt: {},
  decode: {},
};
console.log(
  `${device.name}: ${(weightBytes / 1e9).toFixed(1)} GB of weights and ${(cacheBytes / 1e9).toFixed(0)} GB of cache in ${results.loadSeconds.toFixed(1)} s`,
);

let salt = 0;
const prompt = (length) => Array.from({ length }, (_, i) => (i * 7919 + ++salt * 104729) % (vocabularySize - 1000));
const sampling = { ignoreEos: true, temperature: 0 };

/** Milliseconds until the first token. */
async function firstToken(tokens) {
  const start = performance.now();
  for await (const _ of model.generate(tokens, { ...sampling, maxTokens: 1 })) return performance.now() - start;
}

/** Tokens a second while all of `batch` sequences run, contexts of about 1024. Their prompts are cached before, so that they start together. */
async function decode(batch) {
  const prompts = Array.from({ length: batch }, () => prompt(960));
  await Promise.all(prompts.map(firstToken));
  let [waiting, tokens, first, ended] = [batch, 0, 0, 0];
  const run = async (ids) => {
    let isFirst = true;
    for await (const piece of model.generate(ids, { ...sampling, maxTokens: 160 })) {
      if (waiting === 0 && ended === 0) tokens += piece.tokens.length;
      if (isFirst && --waiting === 0) first = performance.now();
      isFirst = false;
    }
    ended ||= performance.now();
  };
  await Promise.all(prompts.map(run));
  return tokens / ((ended - first) / 1000);
}

/** `streams` sequences decode; new prompts arrive one after another. */
async function mixed(streams, promptLength, count) {
  const gaps = { alone: [], beside: [] };
  const firstTokens = [];
  let [running, prompting, done] = [0, false, false];
  const stream = async (ids) => {
    let last = 0;
    for await (const _ of model.generate(ids, { ...sampling, maxTokens: 4000 })) {
      const now = performance.now();
      if (last === 0) running++;
      else if (running === streams) (prompting ? gaps.beside : gaps.alone).push(now - last);
      last = now;
      if (done) break;
    }
  };
  const prompts = Array.from({ length: streams }, () => prompt(960));
  await Promise.all(prompts.map(firstToken));
  const all = prompts.map(stream);
  while (running < streams) await new Promise((r) => setTimeout(r, 5));
  for (let i = 0; i < count; i++) {
    await new Promise((r) => setTimeout(r, 400));
    prompting = true;
    firstTokens.push(await firstToken(prompt(promptLength)));
    prompting = false;
  }
  done = true;
  await Promise.all(all);
  return {
    streams,
    promptLength,
    gapMedianMs: median(gaps.alone),
    gapBesidePromptMedianMs: median(gaps.beside),
    gapBesidePromptP99Ms: percentile(gaps.beside, 0.99),
    gapBesidePromptMaxMs: Math.max(...gaps.beside),
    firstTokenMs: median(firstTokens),
  };
}

await firstToken(prompt(16));
// What the arithmetic needs at 790 TFLOP/s and the weights and cache at 4.65 TB/s, whichever is longer, part by part.
const layerFlops = 2 * 218.1e6 * 32;
const roofline = {
  prompt: (n) => n / ((n * layerFlops) / 790e12 + (4 * 4096 * 32 * (n * n)) / 2 / 790e12),
  decode: (b) =>
    b / (Math.max((b * layerFlops) / 790e12, 13.96e9 / 4.65e12) + 1.05e9 / 4.65e12 + (b * 1024 * 131072) / 4.65e12),
};
const row = (kind, n, value) => {
  const limit = roofline[kind](n);
  console.log(
    `${kind.padEnd(6)} ${String(n).padStart(5)}: ${value.toFixed(value < 1000 ? 1 : 0).padStart(7)} tokens/s, ${((100 * value) / limit).toFixed(0)} % of ${limit.toFixed(0)}`,
  );
};
if (parts.includes("prompt")) {
  results.firstTokenMs = {};
  for (const length of [512, 2048, 8192]) {
    await firstToken(prompt(length));
    const ms = [];
    for (let i = 0; i < 5; i++) ms.push(await firstToken(prompt(length)));
    results.prompt[length] = length / (median(ms) / 1000);
    results.firstTokenMs[length] = median(ms);
    row("prompt", length, results.prompt[length]);
  }
}
if (parts.includes("decode")) {
  for (const batch of args.batches.split(",").map(Number)) {
    results.decode[batch] = median([await decode(batch), await decode(batch), await decode(batch)]);
    row("decode", batch, results.decode[batch]);
    if (batch === 256) results.hostMicrosPerStep = (await model.stats()).hostMicrosPerStep;
  }
}
if (parts.includes("mixed")) {
  results.mixed = await mixed(64, 2048, 8);
  console.log(results.mixed);
}
results.stats = await model.stats();
console.log({ hostMicrosPerStep: results.hostMicrosPerStep ?? results.stats.hostMicrosPerStep });
if (args.out) writeFileSync(args.out, `${JSON.stringify(results, null, 2)}\n`);
await model.dispose();
