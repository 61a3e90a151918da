// The whole engine on the GPU beside the CPU's: every golden fixture, ten requests at once, greedy and sampled with seeds, must give the
// same tokens.   node bench/gpu/engine.mjs [folder of the built package]
import { readdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const { Model } = await import(pathToFileURL(join(resolve(process.argv[2] ?? "dist"), "index.mjs")).href);
const root = "test/fixtures/golden";
const names = readdirSync(root, { withFileTypes: true }).flatMap((e) => (e.isDirectory() ? [e.name] : []));

async function answers(name, device) {
  const model = await Model.load(join(root, name), { device });
  const vocabulary = model.info.vocabularySize;
  const requests = Array.from({ length: 10 }, (_, i) => ({
    prompt: Array.from({ length: 3 + 7 * i }, (_, k) => (k * 31 + i * 17 + 5) % vocabulary),
    options: {
      maxTokens: 24,
      ignoreEos: true,
      ...(i < 5
        ? { temperature: 0 }
        : { temperature: 0.9, topK: 40, topP: 0.9, minP: 0.01, repetitionPenalty: 1.1, seed: i }),
    },
  }));
  const results = await Promise.all(requests.map(({ prompt, options }) => model.generate(prompt, options)));
  await model.dispose();
  return results.map(({ tokens }) => tokens.map(({ id }) => id).join(" "));
}

let [equal, all] = [0, 0];
for (const name of names) {
  const [cpu, cuda] = [await answers(name, "cpu"), await answers(name, "cuda")];
  const same = cpu.filter((text, i) => text === cuda[i]).length;
  equal += same;
  all += cpu.length;
  if (same < cpu.length) console.log(`${name}: ${same} of ${cpu.length} answers are the CPU's`);
}
console.log(`${equal} of ${all} answers on the GPU are the CPU's, token by token`);
process.exitCode = equal === all ? 0 : 1;
