// The awkward states: each makes its state, calls the method in it, and cleans up. What the call should do is the cell's affair.
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { expect } from "vitest";
import type { Model, ModelOptions } from "../../lib/index.ts";
import { calls, inferx, needsGeneration, startGeneration } from "./calls.mjs";

/** Makes the state, calls `name` in it, resolves or rejects as the call does. */
export type Condition = (name: string) => Promise<unknown>;

const longAnswer = { maxTokens: 120, ignoreEos: true, temperature: 0 };

function call(name: string, model: Model, signal?: AbortSignal, options?: ModelOptions): Promise<unknown> {
  const generation = needsGeneration(name) ? startGeneration(model, signal) : undefined;
  return calls[name]!({
    model,
    ...(generation && { generation }),
    ...(signal && { signal }),
    ...(options && { options }),
  });
}

async function withModel(options: ModelOptions, body: (model: Model) => Promise<unknown>): Promise<unknown> {
  const model = await inferx.Model.load(undefined, options);
  try {
    return await body(model);
  } finally {
    await model.dispose();
  }
}

/** What the background requests end with is not the subject: the call may dispose the model under them. */
async function withBackground(model: Model, requests: number, name: string, options?: ModelOptions): Promise<unknown> {
  const background = Array.from({ length: requests }, (_, i) => model.generate(`Story ${i}: `, longAnswer));
  const ended = Promise.allSettled(background);
  try {
    return await call(name, model, undefined, options);
  } finally {
    for (const generation of background) generation.abort();
    await ended;
  }
}

export const idle: Condition = (name) => withModel({}, (model) => call(name, model));

async function reportOfWorker(name: string): Promise<unknown> {
  const worker = new Worker(new URL("./in-worker.mjs", import.meta.url), { workerData: name });
  try {
    const { value, error } = await new Promise<{ value?: unknown; error?: { code: string; message: string } }>(
      (resolve, reject) => {
        worker.once("message", resolve);
        worker.once("error", reject);
      },
    );
    if (error) throw Object.assign(new Error(error.message), { code: error.code });
    return value;
  } finally {
    await worker.terminate();
  }
}

async function exitDuring(name: string): Promise<void> {
  const child = spawn(process.execPath, [fileURLToPath(new URL("./at-exit.mjs", import.meta.url)), name], {
    stdio: ["ignore", "inherit", "pipe"],
  });
  let stderr = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  const hung = setTimeout(() => child.kill("SIGKILL"), 30_000);
  const [code, signal] = await new Promise<[number | null, NodeJS.Signals | null]>((resolve) => {
    child.once("close", (...ended) => resolve(ended));
  });
  clearTimeout(hung);
  expect({ code, signal, stderr }).toEqual({ code: 7, signal: null, stderr: "" });
}

export const conditions = {
  /** While another model is being loaded in the same process. */
  loading: (name) =>
    withModel({}, async (model) => {
      const other = inferx.Model.load();
      try {
        return await call(name, model);
      } finally {
        await (await other).dispose();
      }
    }),
  /** While 24 other requests run. */
  busy: (name) => withModel({}, (model) => withBackground(model, 24, name)),
  /** After a request was aborted in the middle, with a signal that is aborted already. */
  aborted: (name) =>
    withModel({}, async (model) => {
      const generation = model.generate("A story: ", longAnswer);
      const interrupted = (async () => {
        for await (const _ of generation) generation.abort();
      })();
      await expect(interrupted).rejects.toMatchObject({ code: "IX_ABORTED" });
      return call(name, model, AbortSignal.abort());
    }),
  /** While requests that need twice the cache's blocks run. */
  "out of blocks": (name) =>
    withModel({ cache: { blocks: 12 } }, (model) => withBackground(model, 6, name, { cache: { blocks: 12 } })),
  /** After model.dispose(). */
  disposed: async (name) => {
    const model = await inferx.Model.load();
    const generation = needsGeneration(name) ? startGeneration(model) : undefined;
    await model.dispose();
    return calls[name]!({ model, ...(generation && { generation }) });
  },
  /** In a worker thread with a model of its own. */
  "worker thread": reportOfWorker,
  /** With the call under way when process.exit(7) is called. */
  "process exit": exitDuring,
} satisfies Record<string, Condition>;

export type State = keyof typeof conditions;
export const states = Object.keys(conditions) as State[];
