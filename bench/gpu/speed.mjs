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
async function run(count, length, maxTokens) {
  const start = performance.now();
  const options = { maxTokens, ignoreEos: true, temperature: 0 };
  await Promise.all(Array.from({ length: count }, () => model.generate(prompt(length), options)));
  return (performance.now() - start) / 1000;
}
await run(1, 16, 4);
for (const length of [512, 2048])
  console.log(`prompt ${length}: ${Math.round(length / (await run(1, length, 1)))} tokens/s`);
for (const batch of [1, 8, 32]) {
  const short = await run(batch, 128, 1);
  const long = await run(batch, 128, 33);
  console.log(`decode ${batch}: ${((batch * 32) / (long - short)).toFixed(1)} tokens/s`);
}
const { hostMicrosPerStep, stepMs, steps } = await model.stats();
console.log({ hostMicrosPerStep, stepMs, steps });
await model.dispose();
