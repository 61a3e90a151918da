// Decoding against scoring on the GPU: answers are drawn token by token (decode attention, small products), then each answer is
// scored in one piece behind its prompt (prompt attention, large products). The log-probabilities of the same tokens must agree as
// far as bf16 goes.
//
//   node bench/gpu/decode-check.mjs [path, or a shape of shapes.mjs: 8b] [folder of the built package]
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { modelNamed } from "./shapes.mjs";

const { Model } = await import(pathToFileURL(join(resolve(process.argv[3] ?? "dist"), "index.mjs")).href);
const model = await Model.load(modelNamed(process.argv[2]), {
  device: "cuda",
  numerics: "fast",
  contextLength: 4096,
  maxSequences: 32,
  cache: { bytes: 2e9, prefixCache: false },
});
const { vocabularySize } = model.info;
const prompt = (i) =>
  Array.from({ length: 3 + ((i * 161) % 3000) }, (_, k) => (i * 7919 + k * 104729) % vocabularySize);
const answers = await Promise.all(
  Array.from({ length: 24 }, (_, i) =>
    model.generate(prompt(i), { maxTokens: 100, ignoreEos: true, temperature: 1, seed: i, logprobs: 1 }),
  ),
);
const differences = [];
for (const [i, { tokens }] of answers.entries()) {
  const whole = [...prompt(i), ...tokens.map(({ id }) => id)];
  const { promptLogprobs } = await model.generate(whole, { maxTokens: 0, promptLogprobs: 0 });
  const start = whole.length - tokens.length;
  // the first token's logits come from the prompt in both cases
  for (let k = 1; k < tokens.length; k++) {
    differences.push(Math.abs(tokens[k].logprob - promptLogprobs[start + k].logprob));
  }
}
differences.sort((a, b) => a - b);
const [median, worst] = [differences[Math.floor(differences.length / 2)], differences.at(-1)];
console.log({ tokens: differences.length, median, worst });
await model.dispose();
process.exitCode = differences.length > 2000 && median < 0.02 && worst < 0.2 ? 0 : 1;
