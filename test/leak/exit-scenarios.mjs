// Child process of exit.test.ts: plays the scenario named on the command line, on the built package.
import { isMainThread, Worker, workerData } from "node:worker_threads";
import { Model } from "../../dist/index.mjs";

const endless = { maxTokens: 1500, ignoreEos: true };

async function started() {
  const model = await Model.load();
  const generation = model.generate("A story: ", endless);
  const chunks = generation[Symbol.asyncIterator]();
  await chunks.next();
  return { model, generation, chunks };
}

/** A worker that plays `scenario`; resolves when it reports its first chunk. */
async function worker(scenario) {
  const thread = new Worker(new URL(import.meta.url), { workerData: scenario });
  await new Promise((resolve, reject) => thread.once("message", resolve).once("error", reject));
  return thread;
}

const scenarios = {
  idle: () => Model.load(),
  disposed: async () => {
    const { model } = await started();
    await model.dispose();
  },
  unawaited: async () => {
    const model = await Model.load();
    model.generate("A story: ", { maxTokens: 50 });
  },
  "half-iterated": async () => {
    const { chunks, model } = await started();
    await chunks.return();
    await model.dispose();
  },
  "exit-in-chunk": async () => {
    const { chunks } = await started();
    await chunks.next();
    process.exit(5);
  },
  "exit-while-loading": () => {
    Model.load().catch(() => {});
    setTimeout(() => process.exit(5), 2);
  },
  "exit-code": async () => {
    process.once("exit", () => {
      process.exitCode = 6;
    });
    await started();
    process.exit();
  },
  uncaught: async () => {
    await started();
    setImmediate(() => {
      throw new Error("on purpose");
    });
  },
  busy: async () => {
    await started();
    process.stdout.write("busy\n");
    setInterval(() => {}, 1000);
  },
  "worker-terminate": async () => {
    const thread = await worker("report-and-run");
    await thread.terminate();
  },
  "worker-exit": async () => {
    const thread = await worker("report-and-exit");
    await new Promise((resolve) => thread.once("exit", resolve));
  },
  "worker-restarts": async () => {
    for (let i = 0; i < 20; i++) {
      const thread = await worker("report-and-run");
      await thread.terminate();
    }
  },
  "report-and-run": async () => {
    const { generation } = await started();
    const { parentPort } = await import("node:worker_threads");
    parentPort.postMessage("running");
    await generation;
  },
  "report-and-exit": async () => {
    await started();
    const { parentPort } = await import("node:worker_threads");
    parentPort.postMessage("running");
    process.exit(0);
  },
};

await scenarios[isMainThread ? process.argv[2] : workerData]();
