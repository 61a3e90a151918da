// Speed through the public API on one model, with prompts of token ids: tokens a second of prompts and of decoding.
//
//   node bench/gpu/speed.mjs <model> [folder of the built package] [numerics]
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const { Model } = await import(pathToFileURL(join(resolve(process.argv[3] ?? "dist"), "index.mjs")).href);
const started = performance.now();
const model = await Model.load(process.argv[2], {
  device: "cuda",
  numerics: process.argv[4] ?? "f32",
  contextLength: 4096,
  cache: { dtype: "bf16", bytes: 24e9 },
});
const seconds = (performance.now() - started) / 1000;
const { weightBytes, device, vocabularySize } = model.info;
console.log(`${device.name}: ${(weightBytes / 1e9).toFixed(1)} GB of weights in ${seconds.toFixed(1)} s`);

let salt = 0;
const prompt = (length) => Array.from({ length }, (_, i) => (i * 7919 + ++salt * 104729) % (vocabularySize - 1000));

/** Seconds until each of `count` requests has its first token, and tokens a second from then until the first one ends. */
async function run(count, length, maxTokens) {
  const started = performance.now();
  let [waiting, tokens, first, ended] = [count, 0, 0, 0];
  const request = async () => {
    let isFirst = true;
    for await (const piece of model.generate(prompt(length), { maxTokens, ignoreEos: true, temperature: 0 })) {
      if (waiting === 0 && ended === 0) tokens += piece.tokens.length;
      if (isFirst && --waiting === 0) first = performance.now();
      isFirst = false;
    }
    ended ||= performance.now();
  };
  await Promise.all(Array.from({ length: count }, request));
  return { seconds: (first - started) / 1000, tokensPerSecond: tokens / ((ended - first) / 1000) };
}
await run(1, 16, 4);
for (const length of [512, 2048]) {
  const { seconds } = await run(1, length, 2);
  console.log(`prompt ${length}: ${Math.round(length / seconds)} tokens/s`);
}
for (const batch of [1, 8, 32]) {
  const { tokensPerSecond } = await run(batch, 16, 256);
  console.log(`decode ${batch}: ${tokensPerSecond.toFixed(1)} tokens/s`);
}
const { hostMicrosPerStep, stepMs, steps } = await model.stats();
console.log({ hostMicrosPerStep, stepMs, steps });
await model.dispose();
