// The engine on a device that works later (test/native/deferred_backend.cpp): steps launched ahead, inputs staged twice, graphs captured
// and replayed, everything that a GPU does to the executor but for its kernels. Each request gets what it gets on the CPU.
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, test } from "vitest";
import { Model, type ModelOptions } from "../../lib/index.ts";

const library = fileURLToPath(new URL("../../build/cmake/libdeferred_backend.so", import.meta.url));
if (!existsSync(library)) console.warn(`SKIPPED: ${library} is not built (cmake -DINFERX_BUILD_TESTS=ON)`);

const prompts = Array.from({ length: 24 }, (_, i) =>
  Array.from({ length: 3 + 11 * i }, (_, k) => 5 + ((k * 37 + i * 101) % 3000)),
);
const options = (i: number) => ({
  maxTokens: 12 + (i % 5) * 9,
  ignoreEos: true,
  temperature: i % 3 === 0 ? 0 : 0.9,
  seed: i,
  repetitionPenalty: i % 4 === 0 ? 1.2 : 1,
  logitBias: i % 6 === 0 ? { 17: 4, 99: -3 } : {},
});

describe.skipIf(!existsSync(library))("a device that works later", () => {
  const before = process.env.INFERX_CUDA_LIBRARY;
  process.env.INFERX_CUDA_LIBRARY = library;
  afterAll(() => {
    if (before === undefined) delete process.env.INFERX_CUDA_LIBRARY;
    else process.env.INFERX_CUDA_LIBRARY = before;
  });

  const load = (more: ModelOptions) =>
    Model.load(undefined, { numerics: "f32", contextLength: 512, thread: "main", threads: 1, ...more });
  const answers = (model: Model) =>
    Promise.all(
      prompts.map(async (prompt, i) => {
        const ids: number[] = [];
        for await (const piece of model.generate(prompt, options(i))) ids.push(...piece.tokens.map(({ id }) => id));
        return ids;
      }),
    );

  test.each<[string, ModelOptions]>([
    ["with room for all", {}],
    ["with a small cache and short steps", { cache: { blocks: 40 }, maxStepTokens: 96 }],
    ["in checked mode", { checked: true }],
  ])("24 requests at once, %s", { timeout: 60_000 }, async (_, more) => {
    const onCpu = await load({ device: "cpu" });
    const expected = await answers(onCpu);
    await onCpu.dispose();
    const later = await load({ device: "cuda", ...more });
    for (let round = 0; round < (more.checked ? 1 : 2); round++) expect(await answers(later)).toEqual(expected);
    await later.dispose();
  });
});
