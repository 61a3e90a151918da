// One call per public method, as a user would make it, on the built package. Each returns something that an idle model
// always returns alike, so that the matrix can compare. Plain JavaScript: worker threads and child processes load it too.
import { createRequire } from "node:module";

/** The CommonJS build: native require, whatever transforms the importing test. */
export const inferx = createRequire(import.meta.url)("../../dist/index.cjs");

const prompt = "The fox went to the lake. ";
const greedy = { maxTokens: 8, temperature: 0 };

/** A generation that was started before the call, for the methods that need one. */
export const needsGeneration = (name) => name.startsWith("Generation.") || name === "KVCache.fork";
export const startGeneration = (model, signal) => model.generate(prompt, { ...greedy, signal });

async function textOf(generation) {
  let text = "";
  for await (const chunk of generation) text += chunk.text;
  return text;
}

/** Context: { model, generation, signal, options } -> something comparable. */
export const calls = {
  "Model.load": async ({ signal, options }) => {
    const model = await inferx.Model.load(undefined, { ...options, signal });
    const { architecture } = model.info;
    await model.dispose();
    return architecture;
  },
  "Model.plan": async ({ signal, options }) => {
    const { architecture, weightBytes, fits } = await inferx.Model.plan(undefined, { ...options, signal });
    return { architecture, weightBytes, fits };
  },
  "Model.generate": async ({ model, signal }) => (await model.generate(prompt, { ...greedy, signal })).text,
  "Model.chat": async ({ model, signal }) =>
    textOf(model.chat("How much is 16 plus 4?", { temperature: 0, maxTokens: 16, signal })),
  "Model.tokenize": async ({ model }) => model.tokenize(prompt),
  "Model.detokenize": async ({ model }) => model.detokenize([300, 301, 302]),
  "Model.renderChat": async ({ model }) => model.renderChat("Hello"),
  "Model.stats": async ({ model }) => Object.keys(await model.stats()).sort(),
  "Model.dispose": async ({ model }) => model.dispose(),
  "Model.[Symbol.asyncDispose]": async ({ model }) => model[Symbol.asyncDispose](),

  "KVCache.constructor": async () => new inferx.KVCache({ blocks: 8 }) instanceof inferx.KVCache,
  "KVCache.usage": async ({ model }) => Object.keys(await model.cache.usage()).sort(),
  "KVCache.fork": async ({ model, generation, signal }) => {
    await generation[Symbol.asyncIterator]().next(); // until it runs there is nothing to fork
    const fork = model.cache.fork(generation, { ...greedy, signal });
    const [original, copy] = await Promise.all([generation, fork]);
    return [original.text, copy.text];
  },
  "KVCache.pin": async ({ model }) => {
    const pinned = await model.cache.pin(prompt);
    await pinned.release();
    return pinned.tokens;
  },
  "KVCache.clear": async ({ model }) => model.cache.clear(),

  "Scheduler.constructor": async ({ model }) => {
    const scheduler = new inferx.Scheduler(model, { policy: "priority", cache: new inferx.KVCache({ blocks: 8 }) });
    const { policy } = scheduler;
    await scheduler.dispose();
    return policy;
  },
  "Scheduler.add": async ({ model, signal }) => (await model.scheduler.add({ prompt, ...greedy, signal })).text,
  "Scheduler.stats": async ({ model }) => Object.keys(await model.scheduler.stats()).sort(),
  "Scheduler.on": async ({ model }) => {
    const finished = new Promise((resolve) => model.scheduler.on("finish", resolve));
    const generation = model.generate(prompt, greedy);
    await generation;
    return typeof (await finished);
  },
  "Scheduler.dispose": async ({ model }) => {
    const scheduler = new inferx.Scheduler(model, { cache: new inferx.KVCache({ blocks: 8 }) });
    await scheduler.dispose();
    return scheduler.dispose();
  },

  "Scheduler.[Symbol.asyncDispose]": async ({ model }) => {
    const scheduler = new inferx.Scheduler(model, { cache: new inferx.KVCache({ blocks: 8 }) });
    return scheduler[Symbol.asyncDispose]();
  },

  "Generation.then": async ({ generation }) => (await generation).text,
  "Generation.[Symbol.asyncIterator]": async ({ generation }) => textOf(generation),
  "Generation.abort": async ({ generation }) => generation.abort(),
};
