// Twenty requests at once in one process: they share the steps of one engine, so together they take far less than twenty times as long.
import { Model } from "inferx";

const model = await Model.load(process.argv[2]);
const questions = Array.from({ length: 20 }, (_, i) => `How much is ${i + 3} plus ${2 * i + 5}?`);
const options = { temperature: 0, maxTokens: 32 };

async function timed(work) {
  const start = performance.now();
  const answers = await work();
  return { answers, ms: performance.now() - start };
}

const alone = await timed(async () => {
  const answers = [];
  for (const question of questions) answers.push((await model.chat(question, options)).text);
  return answers;
});
const together = await timed(async () => {
  const results = await Promise.all(questions.map((question) => model.chat(question, options)));
  return results.map(({ text }) => text);
});

for (const [i, text] of together.answers.entries()) console.log(`${questions[i]}  ${text}`);
console.log(`one after the other ${alone.ms.toFixed(0)} ms, at once ${together.ms.toFixed(0)} ms`);

const same = together.answers.every((text, i) => text === alone.answers[i]);
console.log(same ? "every answer is the one it gives alone" : "answers differ");
if (!same) process.exitCode = 1;
await model.dispose();
