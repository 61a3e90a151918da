// Bad load options and bad moments through the public API: overload, disposal, several engines. Typed errors, right answers, and the process lives on.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  type GenerationResult,
  KVCache,
  Model,
  type ModelOptions,
  Scheduler,
  type SchedulerOptions,
} from "../../lib/index.ts";
import { codeOf, demoPath, turns } from "./models.ts";

const story = "Once upon a time";
let answer: string;

beforeAll(async () => {
  await using model = await Model.load(demoPath, { thread: "main" });
  answer = (await model.generate(story, { maxTokens: 12 })).text;
});
afterAll(async () => {
  await using model = await Model.load(demoPath, { thread: "main" });
  expect((await model.generate(story, { maxTokens: 12 })).text).toBe(answer);
});

describe("load options", () => {
  const bad: [string, unknown][] = [
    ...["threads", "contextLength", "maxQueuedRequests", "maxStepTokens", "maxSequences", "targetStepMs"].flatMap(
      (name) => [Number.NaN, -1, 0, "4", Number.POSITIVE_INFINITY].map((value): [string, unknown] => [name, value]),
    ),
    ["threads", 1025],
    ["contextLength", 2049],
    ["maxStepTokens", 1e9],
    ["device", "gpu"],
    ["numerics", "f64"],
    ["policy", "lifo"],
    ["thread", "both"],
    ["checked", 1],
    ["scheduler", 1],
    ["signal", {}],
    ["onProgress", 5],
    ["chatTemplate", 5],
    ["architectures", 5],
    ["context_length", 5],
    ...[
      { bytes: 1, blocks: 1 },
      { blocks: 0 },
      { bytes: -1 },
      { share: 2 },
      { share: Number.NaN },
      { dtype: "f16" },
      { prefixCache: 1 },
      { swapBytes: -1 },
      { size: 5 },
      5,
      null,
    ].map((cache): [string, unknown] => ["cache", cache]),
  ];
  test.each(bad)("%s: %o", async (name, value) => {
    expect(await codeOf(Model.load(demoPath, { [name]: value } as ModelOptions))).toBe("IX_INVALID_ARGUMENT");
  });

  test("what cannot be had", async () => {
    expect(await codeOf(Model.load(demoPath, { cache: { bytes: 1e15 } }))).toBe("IX_OUT_OF_MEMORY");
    expect(await codeOf(Model.load(demoPath, { cache: { swapBytes: 1e15 } }))).toBe("IX_OUT_OF_MEMORY");
    expect(await codeOf(Model.load(demoPath, { cache: { bytes: 100 } }))).toBe("IX_OUT_OF_MEMORY");
    expect(await codeOf(Model.load(demoPath, { cache: { blocks: 1 << 24 } }))).toBe("IX_OUT_OF_MEMORY");
    expect(await codeOf(Model.load(demoPath, { signal: AbortSignal.abort() }))).toBe("IX_ABORTED");
  });
});

describe("moments", () => {
  test("200 requests at once on 16 blocks are all answered; what never fits is refused", async () => {
    await using model = await Model.load(demoPath, { cache: { blocks: 16 } });
    const requests = Array.from({ length: 200 }, () => model.generate(story, { maxTokens: 12 }));
    expect(new Set((await Promise.all(requests)).map(({ text }) => text))).toEqual(new Set([answer]));
    expect(await codeOf(model.generate(story, { maxTokens: 600 }))).toBe("IX_KV_EXHAUSTED");
    expect(await codeOf(model.generate(Array(600).fill(5), { maxTokens: 0 }))).toBe("IX_KV_EXHAUSTED");
  });

  test("a full queue", async () => {
    await using model = await Model.load(demoPath, { thread: "main", maxQueuedRequests: 3, maxSequences: 1 });
    const results = await Promise.allSettled(Array.from({ length: 10 }, () => model.generate(story, { maxTokens: 4 })));
    const refused = results.flatMap((r) => (r.status === "rejected" ? [(r.reason as { code: string }).code] : []));
    expect(new Set(refused)).toEqual(new Set(["IX_QUEUE_FULL"]));
    expect(results.length - refused.length).toBeGreaterThanOrEqual(3);
  });

  test("two engines in one process share weights, not fates", async () => {
    await using first = await Model.load(demoPath);
    const second = await Model.load(demoPath, { thread: "main", cache: { blocks: 20 } });
    const ask = (model: Model): PromiseLike<GenerationResult> => model.generate(story, { maxTokens: 12 });
    const results = await Promise.all([first, second, first, second].map(ask));
    expect(new Set(results.map(({ text }) => text))).toEqual(new Set([answer]));
    const open = first.generate(story, { maxTokens: 100, ignoreEos: true });
    await second.dispose();
    expect((await open).tokens.length).toBe(100);
    expect(await codeOf(ask(second))).toBe("IX_DISPOSED");
    expect((await ask(first)).text).toBe(answer);
  });

  test.each(["main", "worker"] as const)("dispose during generation, thread %s", async (thread) => {
    const model = await Model.load(demoPath, { thread });
    const running = Array.from({ length: 20 }, (_, i) => model.generate([i + 1, 5, 6], { ignoreEos: true }));
    const codes = Promise.all(running.map(codeOf));
    for await (const _ of running[0]!) break;
    const stats = model.stats().then(
      () => "answered",
      (error: { code: string }) => error.code,
    );
    await Promise.all([model.dispose(), model.dispose()]);
    expect(new Set(await codes)).toEqual(new Set(["IX_ABORTED", "IX_DISPOSED"]));
    expect(["answered", "IX_DISPOSED"]).toContain(await stats);
    const { cache } = model;
    const late = [
      model.generate(story),
      model.chat(story),
      model.stats(),
      cache.usage(),
      cache.clear(),
      cache.pin(story),
    ];
    expect(await Promise.all(late.map(codeOf))).toEqual(late.map(() => "IX_DISPOSED"));
  });

  test.each(["main", "worker"] as const)(
    "loading that is cancelled before and after it has begun, thread %s",
    async (thread) => {
      await using model = await Model.load(demoPath, { scheduler: false });
      const early = new Scheduler(model, { thread, signal: AbortSignal.abort("early") });
      const controller = new AbortController();
      const late = new Scheduler(model, { thread, signal: controller.signal });
      controller.abort("late");
      for (const scheduler of [early, late]) {
        expect(await codeOf(scheduler.ready)).toBe("IX_ABORTED");
        expect(await codeOf(scheduler.add({ prompt: story }))).toBe("IX_ABORTED");
        expect(await codeOf(scheduler.stats())).toBe("IX_ABORTED");
        await scheduler.dispose();
      }
    },
  );

  test("dispose before the engine is ready, and a cache in two schedulers", async () => {
    await using model = await Model.load(demoPath, { scheduler: false });
    for (const thread of ["main", "worker"] as const) {
      const scheduler = new Scheduler(model, { thread });
      const early = codeOf(scheduler.add({ prompt: story }));
      await turns(1);
      await scheduler.dispose();
      expect(["IX_ABORTED", "IX_DISPOSED"]).toContain(await early);
      expect(["IX_ABORTED", "IX_DISPOSED"]).toContain(await codeOf(scheduler.add({ prompt: story })));
    }
    const cache = new KVCache({ blocks: 16 });
    await using first = new Scheduler(model, { cache, thread: "main" });
    expect(await codeOf(() => new Scheduler(model, { cache }))).toBe("IX_INVALID_ARGUMENT");
    expect((await first.add({ prompt: story, maxTokens: 12 })).text).toBe(answer);
    expect(await codeOf(() => new KVCache().usage())).toBe("IX_INVALID_ARGUMENT");
    for (const options of [{ cache: {} }, { policy: "lifo" }, { numerics: "f32" }] as unknown as SchedulerOptions[])
      expect(await codeOf(() => new Scheduler(model, options))).toBe("IX_INVALID_ARGUMENT");
    expect(await codeOf(() => model.generate(story))).toBe("IX_INVALID_ARGUMENT");
  });
});
