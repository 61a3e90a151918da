// Megabytes of text a second through the tokenizer of the bundled model (or of the model named), on one thread.
//
//   node bench/tokenizer.mjs [model] [--save]
import { readFileSync } from "node:fs";
import { Model } from "../dist/index.mjs";
import { median, report, round } from "./report.mjs";

const path = process.argv[2]?.startsWith("--") ? undefined : process.argv[2];
const model = await Model.load(path, { scheduler: false });
const text = readFileSync(new URL("../models/demo/eval_text.txt", import.meta.url), "utf8");
const megabytes = Buffer.byteLength(text) / 1e6;

function secondsOf(work) {
  const runs = [];
  for (let i = 0; i < 12; i++) {
    const start = performance.now();
    work();
    runs.push((performance.now() - start) / 1000);
  }
  return median(runs.slice(2)); // the first two warm up
}

const tokens = model.tokenize(text);
if (model.detokenize(tokens) !== text) throw new Error("the text does not survive encoding and decoding");
const encode = secondsOf(() => model.tokenize(text));
const decode = secondsOf(() => model.detokenize(tokens));
report("tokenizer", {
  model: model.info.path,
  megabytes: round(megabytes, 3),
  tokens: tokens.length,
  encodeMBPerSecond: round(megabytes / encode),
  decodeMBPerSecond: round(megabytes / decode),
});
await model.dispose();
