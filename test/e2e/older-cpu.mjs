// Run by older-cpus.test.ts on an emulated processor: which kernels were chosen, and what the bundled model says in either arithmetic.
import { Model } from "../../dist/index.mjs";

const report = {};
for (const numerics of ["f32", "fast"]) {
  const model = await Model.load(undefined, { device: "cpu", threads: 1, numerics });
  report.arch = model.info.device.arch;
  const greedy = { maxTokens: 24, temperature: 0 };
  report[numerics] = [
    // A story may go on in two ways that are equally likely: rounding decides. Answers may not.
    ...(numerics === "f32" ? [(await model.generate("Once upon a time", greedy)).text] : []),
    (await model.chat("How much is 16 plus 4?", greedy)).text,
    (await model.chat("How much is 9 minus 3?", greedy)).text,
  ];
  await model.dispose();
}
console.log(JSON.stringify(report));
