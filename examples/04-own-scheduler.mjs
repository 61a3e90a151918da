// The classes behind model.generate(): a cache of a chosen size, a policy, events, a prefix that stays, and a fork.
import { KVCache, Model, Scheduler } from "inferx";

// `scheduler: false`: the model makes none of its own.
const model = await Model.load(process.argv[2], { scheduler: false });
const cache = new KVCache({ bytes: 8 * 2 ** 20 });
const scheduler = new Scheduler(model, { cache, policy: "priority" });
scheduler.on("finish", (id) => console.log(`request ${id} has finished`));

// A shared beginning is computed once and kept until it is released; whole blocks of 32 tokens are shared.
const beginning =
  "Dear Opal,\n\nI hope that you are well and that the weather in Porto is good. Do you still have the telescope that I gave you? My uncle has started to learn swimming. ";
const pinned = await cache.pin(beginning);
console.log(`${pinned.tokens} tokens pinned`);

const options = { temperature: 0, maxTokens: 16 };
const first = scheduler.add({ prompt: `${beginning}The whole house`, ...options, priority: 1 });
const urgent = scheduler.add({ prompt: `${beginning}Could you`, ...options, priority: 0 }); // lower runs first

// A fork goes on from where a generation stands; both share the blocks behind them.
await first[Symbol.asyncIterator]().next();
const other = cache.fork(first, { temperature: 1, seed: 7, maxTokens: 16 });

for (const { text, usage } of await Promise.all([first, urgent, other])) {
  console.log(`${usage.cachedTokens} of ${usage.promptTokens} prompt tokens from the cache: ${JSON.stringify(text)}`);
}

const { usedBlocks, cachedBlocks, blocks } = await cache.usage();
const { steps } = await scheduler.stats();
console.log(`${steps} steps; ${usedBlocks} of ${blocks} blocks in use, ${cachedBlocks} kept for prefixes`);

await pinned.release();
await scheduler.dispose();
await model.dispose();
