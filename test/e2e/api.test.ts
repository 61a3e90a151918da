// The public API on the bundled model: streams, ends, usage, aborts, forks, pins, events, plans. Numbers of the sampler: scores.test.ts.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type GenerationChunk, InferxError, KVCache, Model, Scheduler } from "../../lib/index.ts";
import { codeOf, demoPath, turns } from "./models.ts";

let model: Model;
const story = "Once upon a time";

beforeAll(async () => {
  model = await Model.load(demoPath, { thread: "main" });
});
afterAll(async () => {
  await model?.dispose();
});

async function idle(of: { stats(): ReturnType<Model["stats"]> } = model) {
  for (;;) {
    const stats = await of.stats();
    if (stats.running + stats.waiting === 0) return stats;
    await turns(1);
  }
}

async function chunksOf(generation: AsyncIterable<GenerationChunk>) {
  const chunks: GenerationChunk[] = [];
  for await (const chunk of generation) chunks.push(chunk);
  return { text: chunks.map(({ text }) => text).join(""), tokens: chunks.flatMap(({ tokens }) => tokens), chunks };
}

describe("streams and wholes", () => {
  test.each([
    ["generate", () => model.generate(story, { maxTokens: 50 })],
    ["chat", () => model.chat("Tell me a short story about a fox and a lantern.", { maxTokens: 80 })],
    ["chat with Unicode", () => model.chat("Say: Zürich ☕ 🎈", { maxTokens: 30, ignoreEos: true })],
    ["sampled", () => model.generate(story, { maxTokens: 60, temperature: 3, seed: 5, ignoreEos: true })],
  ])("%s: the chunks joined are the text, and the text is that of the tokens", async (_, start) => {
    const generation = start();
    const [streamed, whole] = await Promise.all([chunksOf(generation), generation]);
    expect(streamed.text).toBe(whole.text);
    expect(streamed.tokens).toEqual(whole.tokens);
    expect(streamed.chunks.length).toBeGreaterThan(1);
    const ids = whole.tokens.map(({ id }) => id);
    expect(whole.text).toBe(model.detokenize(ids));
    expect(whole.usage.completionTokens).toBe(ids.length);
    // Iterated again after its end, and awaited only; two loops at once see the same.
    expect(await chunksOf(generation)).toEqual(streamed);
    const twice = start();
    expect(await Promise.all([chunksOf(twice), chunksOf(twice)])).toEqual(
      [streamed, streamed].map(({ text, tokens }) => expect.objectContaining({ text, tokens })),
    );
    const again = start();
    expect((await again).text).toBe(whole.text);
    expect((await chunksOf(again)).text).toBe(whole.text);
  });

  test("usage and timings", async () => {
    const prompt = model.tokenize(`${story}, far away`);
    const { usage, timings, finishReason, stopReason } = await model.generate(prompt, {
      maxTokens: 20,
      ignoreEos: true,
    });
    expect(usage).toMatchObject({ promptTokens: prompt.length, completionTokens: 20 });
    expect([finishReason, stopReason]).toEqual(["length", null]);
    expect(timings.queueMs).toBeGreaterThanOrEqual(0);
    expect(timings.firstTokenMs).toBeGreaterThanOrEqual(timings.queueMs);
    expect(timings.totalMs).toBeGreaterThan(timings.firstTokenMs);
    expect(timings.tokensPerSecond).toBeCloseTo((19 / (timings.totalMs - timings.firstTokenMs)) * 1000, 3);
    const long = model.tokenize(`${story} `.repeat(30));
    await model.generate(long, { maxTokens: 1 });
    const { usage: second } = await model.generate(long, { maxTokens: 1 });
    expect(second.cachedTokens).toBe(Math.floor((long.length - 1) / 32) * 32);
  });

  test("maxTokens 0 computes the prompt and answers nothing", async () => {
    const { text, tokens, finishReason } = await model.generate(story, { maxTokens: 0 });
    expect([text, tokens, finishReason]).toEqual(["", [], "length"]);
  });
});

describe("ends", () => {
  test("the text ends before the first stop string, wherever tokens part", async () => {
    const { text, tokens } = await model.generate(story, { maxTokens: 40 });
    for (let start = 0; start < text.length; start += 3) {
      for (const length of [1, 2, 5, 11]) {
        const stop = text.slice(start, start + length);
        const { finishReason, stopReason, ...stopped } = await model.generate(story, {
          maxTokens: 40,
          stop: [stop, "\u0001"],
        });
        expect(stopped.text, JSON.stringify(stop)).toBe(text.slice(0, text.indexOf(stop)));
        expect([finishReason, stopReason]).toEqual(["stop", stop]);
        expect(stopped.tokens).toEqual(tokens.slice(0, stopped.tokens.length));
      }
    }
  });

  test("a beginning of a stop string at the very end comes out", async () => {
    const { text } = await model.generate(story, { maxTokens: 40 });
    const almost = `${text.slice(-4)}\u0001`;
    expect(await model.generate(story, { maxTokens: 40, stop: almost })).toMatchObject({
      text,
      finishReason: "length",
    });
    // The last token completes the stop string and exhausts maxTokens at once.
    const last = await model.generate(story, { maxTokens: 40, stop: text.slice(-1) });
    expect(last.finishReason).toBe("stop");
  });

  test("stop tokens, the model's own end, and going on past it", async () => {
    const { tokens, text } = await model.generate(story, { maxTokens: 20 });
    const token = tokens[7]!.id;
    const first = tokens.findIndex(({ id }) => id === token);
    const stopped = await model.generate(story, { maxTokens: 20, stopTokens: [token] });
    expect(stopped).toMatchObject({ finishReason: "stop", stopReason: token });
    expect(text.startsWith(stopped.text)).toBe(true);
    expect(stopped.text).toBe(model.detokenize(tokens.slice(0, first).map(({ id }) => id)));

    const ended = await model.chat("What is 12 + 30?");
    expect(ended).toMatchObject({ text: "12 + 30 = 42", finishReason: "stop", stopReason: null });
    const further = await model.chat("What is 12 + 30?", { ignoreEos: true, maxTokens: ended.tokens.length + 5 });
    expect(further).toMatchObject({ finishReason: "length" });
    expect(further.tokens.slice(0, ended.tokens.length)).toEqual(ended.tokens);
  });
});

describe("aborts", () => {
  const long = () => model.tokenize("The fox ran. ".repeat(500)).slice(0, 1900);

  const later = (ms: number) => (abort: () => void) => void setTimeout(abort, ms);
  test.each<[string, (abort: () => void) => void, () => string | number[]]>([
    ["before the call", (abort) => abort(), () => story],
    ["while the prompt is encoded", queueMicrotask, () => story.repeat(2000)],
    ["in the middle of a long prompt", later(40), long],
    ["while decoding", later(250), () => story],
  ])("%s", async (_, start, prompt) => {
    const controller = new AbortController();
    let abortedAt = 0;
    start(() => {
      abortedAt = performance.now();
      controller.abort("early");
    });
    const generation = model.generate(prompt(), { signal: controller.signal, ignoreEos: true });
    const error: unknown = await generation.then(
      () => undefined,
      (reason: unknown) => reason,
    );
    expect(performance.now() - abortedAt).toBeLessThan(2000);
    expect(error).toBeInstanceOf(InferxError);
    expect(error).toMatchObject({ code: "IX_ABORTED", cause: "early" });
    const { text, tokens } = (error as InferxError).details as { text: string; tokens: number[] };
    expect(model.detokenize(tokens).startsWith(text)).toBe(true);
    expect((await idle()).cache.usedBlocks).toBe(0);
  });

  test("leaving the loop early frees the blocks", async () => {
    const generation = model.generate(story, { ignoreEos: true });
    for await (const { tokens } of generation) {
      expect(tokens.length).toBeGreaterThan(0);
      break;
    }
    expect(await codeOf(generation)).toBe("IX_ABORTED");
    expect((await idle()).cache.usedBlocks).toBe(0);
  });

  test("abort() after the end changes nothing", async () => {
    const generation = model.generate(story, { maxTokens: 3 });
    const { text } = await generation;
    generation.abort();
    expect((await generation).text).toBe(text);
  });
});

describe("forks, pins, events, plans", () => {
  test("a fork goes on as its source does, in shared blocks", async () => {
    const { tokens } = await model.generate(story, { maxTokens: 60, ignoreEos: true });
    const ids = tokens.map(({ id }) => id);
    const source = model.generate(story, { maxTokens: 60, ignoreEos: true });
    const forks = [];
    let seen = 0;
    for await (const chunk of source) {
      seen += chunk.tokens.length;
      if (seen % 10 === 0) forks.push({ seen, fork: model.cache.fork(source, { maxTokens: 15, ignoreEos: true }) });
    }
    expect(forks.length).toBeGreaterThan(3);
    for (const { seen: at, fork } of forks) {
      const answer = await fork;
      expect(answer.usage.promptTokens).toBe(model.tokenize(story).length + at);
      const wanted = ids.slice(at, at + 15);
      expect(answer.tokens.slice(0, wanted.length).map(({ id }) => id)).toEqual(wanted);
    }
    expect(await codeOf(model.cache.fork(model.generate(story, { maxTokens: 1 })))).toBe("IX_INVALID_ARGUMENT");
  });

  test("a pinned prefix survives pressure, clear() forgets it", async () => {
    await using scheduler = new Scheduler(model, { thread: "main", cache: new KVCache({ blocks: 16 }) });
    const prefix = model.tokenize(`${story} `.repeat(40)).slice(0, 100);
    const pin = await scheduler.cache.pin(prefix);
    expect(pin.tokens).toBe(96);
    for (let i = 0; i < 8; i++) await scheduler.add({ prompt: Array(200).fill(5 + i), maxTokens: 1 });
    const hit = await scheduler.add({ prompt: [...prefix, 9], maxTokens: 1 });
    expect(hit.usage.cachedTokens).toBe(96);
    await pin.release();
    await pin.release();
    for (let i = 0; i < 8; i++) await scheduler.add({ prompt: Array(200).fill(50 + i), maxTokens: 1 });
    expect((await scheduler.add({ prompt: [...prefix, 9], maxTokens: 1 })).usage.cachedTokens).toBe(0);
    await scheduler.cache.clear();
    expect(await scheduler.cache.usage()).toMatchObject({ blocks: 16, usedBlocks: 0, cachedBlocks: 0, freeBlocks: 16 });
  });

  test.each(["main", "worker"] as const)("events come once per request, thread %s", async (thread) => {
    await using scheduler = new Scheduler(model, { thread });
    const heard: string[] = [];
    const offs = (["admit", "finish", "preempt"] as const).map((e) =>
      scheduler.on(e, (id) => heard.push(`${e} ${id}`)),
    );
    await scheduler.ready;
    const first = scheduler.add({ prompt: story, maxTokens: 3 });
    const second = scheduler.add({ prompt: story, maxTokens: 5 });
    await Promise.all([first, second]);
    await idle(scheduler);
    expect(heard.toSorted()).toEqual([first, second].flatMap(({ id }) => [`admit ${id}`, `finish ${id}`]).toSorted());
    for (const off of offs) off();
    await scheduler.add({ prompt: story, maxTokens: 3 });
    await idle(scheduler);
    expect(heard.length).toBe(4);
  });

  test("Model.plan tells what loading takes", async () => {
    const plan = await Model.plan(demoPath);
    const { info } = model;
    for (const key of ["architecture", "parameters", "weightBytes", "cacheBytes", "blocks", "blockTokens"] as const)
      expect(plan[key], key).toBe(info[key]);
    expect(plan.totalBytes).toBe(plan.weightBytes + plan.cacheBytes + plan.activationBytes);
    expect(plan.cacheBytes).toBe(plan.bytesPerToken * plan.blocks * plan.blockTokens);
    expect(plan.fits).toBe(true);
    expect((await model.stats()).cache).toMatchObject({ blocks: plan.blocks, bytes: plan.cacheBytes });
    expect(await Model.plan(demoPath, { cache: { bytes: 1e13 } })).toMatchObject({ fits: false });
    expect(await Model.plan(demoPath, { cache: { blocks: 3 } })).toMatchObject({ blocks: 3 });
    // A share of the free memory is settled once, when the cache is made.
    await using shared = await Model.load(demoPath, { thread: "main", cache: { share: 0.002 }, maxStepTokens: 64 });
    await turns(20);
    expect((await shared.stats()).cache).toMatchObject({ blocks: shared.info.blocks, bytes: shared.info.cacheBytes });
  });
});
