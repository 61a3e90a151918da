// Child process of memory.test.ts: repeats one thing and prints resident memory before and after, run with --expose-gc.
import { Worker } from "node:worker_threads";
import { Model } from "../../dist/index.mjs";

const [scenario, times] = [process.argv[2], Number(process.argv[3])];
const greedy = { temperature: 0, maxTokens: 8 };

async function loadOnce() {
  const model = await Model.load();
  await model.generate("The fox", greedy);
  await model.dispose();
}

async function workerOnce() {
  const source = `
    const { Model } = require(${JSON.stringify(new URL("../../dist/index.cjs", import.meta.url).pathname)});
    Model.load().then(async (model) => { await model.generate("The fox", { maxTokens: 8 }); await model.dispose(); });`;
  const worker = new Worker(source, { eval: true });
  const code = await new Promise((resolve, reject) => worker.once("exit", resolve).once("error", reject));
  if (code !== 0) throw new Error(`worker ended with ${code}`);
}

// A small cache: its memory is only backed once it is touched, which is no leak.
const cache = { blocks: 64 };
const model = scenario === "load" || scenario === "worker" ? undefined : await Model.load(undefined, { cache });

const scenarios = {
  load: loadOnce,
  worker: workerOnce,
  requests: (i) => model.generate(`Request ${i}: the fox`, greedy),
  logprobs: (i) => model.generate(`Request ${i}: the fox`, { ...greedy, logprobs: 20, promptLogprobs: 5 }),
  aborts: async (i) => {
    const generation = model.generate(`Request ${i}: the fox`, { maxTokens: 400, ignoreEos: true });
    try {
      for await (const _ of generation) generation.abort();
    } catch (error) {
      if (error.code !== "IX_ABORTED") throw error;
    }
  },
};

async function residentMiB() {
  for (let i = 0; i < 3; i++) {
    globalThis.gc();
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return Math.round(process.memoryUsage.rss() / 2 ** 20);
}

for (let i = 0; i < Math.ceil(times / 2); i++) await scenarios[scenario](i);
const warmMiB = await residentMiB();
for (let i = 0; i < times; i++) await scenarios[scenario](i);
const endMiB = await residentMiB();
const usage = await model?.cache.usage();
await model?.dispose();
process.stdout.write(JSON.stringify({ warmMiB, endMiB, usedBlocks: usage?.usedBlocks ?? 0 }));
