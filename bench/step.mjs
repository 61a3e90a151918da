// Microseconds of TypeScript work per step of the engine's loop (scheduling, inputs, outputs), at several batch sizes.
//
//   node bench/step.mjs [--save]
import { Model } from "../dist/index.mjs";
import { report, round } from "./report.mjs";

const rows = [];
for (const requests of [1, 8, 32, 128]) {
  const model = await Model.load(undefined, { cache: { blocks: 2048 } });
  const prompt = Array.from({ length: 16 }, (_, i) => 300 + i);
  const options = { maxTokens: 200, ignoreEos: true, temperature: 0 };
  await Promise.all(Array.from({ length: requests }, (_, i) => model.generate([...prompt, 400 + i], options)));
  const { hostMicrosPerStep, stepMs, steps } = await model.stats();
  rows.push({ requests, steps, hostMicrosPerStep: round(hostMicrosPerStep, 1), stepMs: round(stepMs) });
  await model.dispose();
}
report("step", { rows });
