// Loading weights through the addon: tensor tables that lie, files that change, cancelling, sharing. The tables here are given
// to C++ as they are; the parsers of checkpoints, which refuse most of this earlier, have tests of their own.
import { mkdtempSync, renameSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { createBuilder } from "../../lib/ir/builder.ts";
import { lower } from "../../lib/passes/index.ts";
import type { NativeDevice, NativeTensor, NativeWeights } from "../../types/native.d.ts";

import { addon } from "../device.ts";

const binding = addon();
const title = binding ? "loading weights" : "loading weights (SKIPPED: the addon is not built)";

const limits = {
  maxTokens: 4,
  maxSequences: 2,
  maxLogitRows: 2,
  maxRunning: 2,
  contextTokens: 32,
  blockTokens: 32,
  maxBias: 1,
};

/** embed → linear; every weight [rows, columns] f32. */
function planOf(device: NativeDevice, rows: number, columns: number): Uint8Array {
  const shape = [rows, columns];
  const tensors = ["embed.weight", "head.weight"].map((name) => [name, { dtype: "f32", shape }] as const);
  const g = createBuilder(new Map(tensors));
  g.output("logits", g.linear(g.gather(g.embed(g.tokens, g.weight("embed")), g.rowIndex), g.weight("head")));
  return lower(g.finish(), { kernels: device.kernels(), limits }).plan;
}

describe.skipIf(!binding)(title, () => {
  const [rows, columns] = [40, 64];
  const bytes = rows * columns * 4;
  let folder: string;
  let device: NativeDevice;
  let plan: Uint8Array;
  let keys = 0;
  const newKey = () => `weights test ${process.pid} ${keys++}`;

  const tensor = (name: string, offset: number, more: Partial<NativeTensor> = {}): NativeTensor => {
    return { name, dtype: "f32", file: 0, offset, bytes, dims: [rows, columns], ...more };
  };
  const sound = [tensor("embed.weight", 0), tensor("head.weight", bytes)];
  const file = (name: string, size = 2 * bytes) => {
    const path = join(folder, name);
    writeFileSync(path, Buffer.alloc(size, 1));
    return path;
  };
  const load = (tensors: NativeTensor[], files: string[], key = newKey()): NativeWeights =>
    new binding!.Weights(device, plan, tensors, files, key);
  const code = (call: Promise<unknown>) =>
    call.then(
      () => "loaded",
      (error) => (error as { code?: string }).code,
    );

  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "inferx-weights-"));
    device = new binding!.Device("cpu", 0, 2, "");
    plan = planOf(device, rows, columns);
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  it("loads a sound table", async () => {
    const weights = load(sound, [file("sound")]);
    expect(weights.progress()).toEqual([0, 0]);
    await weights.ready();
    const [loaded, total] = weights.progress();
    expect(loaded).toBe(total);
    expect(total).toBeGreaterThanOrEqual(2 * bytes);
  });

  const lies: [string, Partial<NativeTensor>, string][] = [
    ["an offset beyond the file", { offset: 2 * bytes + 1 }, "IX_MODEL_FORMAT"],
    ["an offset that leaves too little", { offset: bytes + 1 }, "IX_MODEL_FORMAT"],
    ["a negative offset", { offset: -4 }, "IX_MODEL_FORMAT"],
    ["an offset of 2^62", { offset: 2 ** 62 }, "IX_MODEL_FORMAT"],
    ["an offset that is not finite", { offset: Number.POSITIVE_INFINITY }, "IX_MODEL_FORMAT"],
    ["too few bytes", { bytes: bytes - 4 }, "IX_MODEL_FORMAT"],
    ["too many bytes", { bytes: bytes + 4 }, "IX_MODEL_FORMAT"],
    ["negative bytes", { bytes: -bytes }, "IX_MODEL_FORMAT"],
    ["dims of 2^64 elements", { dims: [2 ** 32, 2 ** 32] }, "IX_MODEL_FORMAT"],
    ["dims whose product wraps to the bytes", { dims: [2 ** 33, 2 ** 31, rows, columns] }, "IX_MODEL_FORMAT"],
    ["an offset that is no number", { offset: Number.NaN }, "IX_MODEL_FORMAT"],
    ["half an element", { dims: [rows + 0.5, columns] }, "IX_MODEL_FORMAT"],
    ["a negative dim", { dims: [-rows, -columns] }, "IX_MODEL_FORMAT"],
    ["an empty dim", { dims: [0, columns], bytes: 0 }, "IX_MODEL_FORMAT"],
    ["no dims", { dims: [], bytes: 4 }, "IX_MODEL_FORMAT"],
    ["another shape", { dims: [columns, rows] }, "IX_MODEL_FORMAT"],
    ["fewer rows", { dims: [rows - 1, columns], bytes: bytes - 4 * columns }, "IX_MODEL_FORMAT"],
    ["a dtype without kernels", { dtype: "f64" }, "IX_UNSUPPORTED_FORMAT"],
    ["a dtype that is none", { dtype: "" }, "IX_UNSUPPORTED_FORMAT"],
    ["rows that are no whole blocks", { dtype: "q4_k" }, "IX_MODEL_FORMAT"],
    ["a file that is not in the list", { file: 1 }, "IX_MODEL_FORMAT"],
    ["another name", { name: "embed" }, "IX_MODEL_FORMAT"],
  ];
  it.each(lies)("refuses %s", async (_, lie, wanted) => {
    const attempt = async () => load([tensor("embed.weight", 0, lie), sound[1]!], [file("lies")]).ready();
    expect(await code(attempt())).toBe(wanted);
  });

  it("refuses an empty table, a missing file and a folder", async () => {
    expect(await code(load([], [file("empty")]).ready())).toBe("IX_MODEL_FORMAT");
    expect(await code(load(sound, [join(folder, "none")]).ready())).toBe("IX_FILE_NOT_FOUND");
    expect(await code(load(sound, [folder]).ready())).toBe("IX_FILE_READ");
  });

  it("refuses a file that was truncated or replaced by a shorter one since its header was read", async () => {
    const truncated = file("truncated");
    const first = load(sound, [truncated]);
    truncateSync(truncated, bytes);
    expect(await code(first.ready())).toBe("IX_MODEL_FORMAT");
    const replaced = file("replaced");
    const second = load(sound, [replaced]);
    renameSync(file("short", 8), replaced);
    expect(await code(second.ready())).toBe("IX_MODEL_FORMAT");
  });

  it("a failed load leaves its key usable", async () => {
    const key = newKey();
    const path = join(folder, "later");
    expect(await code(load(sound, [path], key).ready())).toBe("IX_FILE_NOT_FOUND");
    file("later");
    const again = load(sound, [path], key);
    expect(await code(again.ready())).toBe("loaded");
  });

  it("a plan that is damaged is refused when the weights are made", () => {
    const damaged = plan.slice();
    damaged[100]! ^= 1;
    expect(() => new binding!.Weights(device, damaged, sound, [], newKey())).toThrow(
      expect.objectContaining({ code: "IX_PLAN" }),
    );
  });

  it("an executor before the weights are there is refused", () => {
    const weights = load(sound, [file("early")]);
    expect(() => new binding!.Executor(device, plan, weights, { blocks: [], checked: false })).toThrow(
      expect.objectContaining({ code: "IX_INVALID_ARGUMENT" }),
    );
  });

  it("objects of another class are refused", () => {
    for (const thing of [{}, load(sound, []), [], null, 1]) {
      expect(() => new binding!.Weights(thing as NativeDevice, plan, sound, [], newKey())).toThrow();
      expect(() => Reflect.apply(device.info, thing, [])).toThrow();
    }
  });

  describe("of some megabytes", () => {
    const big = { rows: 8192, columns: 1024 };
    const bigBytes = big.rows * big.columns * 4;
    const table = ["embed.weight", "head.weight"].map((name, i) => {
      return { name, dtype: "f32", file: 0, offset: i * bigBytes, bytes: bigBytes, dims: [big.rows, big.columns] };
    });
    let bigPlan: Uint8Array;
    let path: string;
    beforeAll(() => {
      bigPlan = planOf(device, big.rows, big.columns);
      path = file("big", 2 * bigBytes);
    });
    const loadBig = (key: string) => new binding!.Weights(device, bigPlan, table, [path], key);

    /** Both numbers at each turn of the event loop until the promise settles. */
    async function watch(
      weights: NativeWeights,
      settled: Promise<unknown>,
      each: (loaded: number, total: number) => void,
    ) {
      let done = false;
      const end = settled.finally(() => {
        done = true;
      });
      end.catch(() => {});
      while (!done) {
        each(...weights.progress());
        await new Promise((resolve) => setImmediate(resolve));
      }
      each(...weights.progress());
      await end;
    }

    it("progress only grows, and ends at the total", async () => {
      const weights = loadBig(newKey());
      const seen: [number, number][] = [];
      await watch(weights, weights.ready(), (...numbers) => seen.push(numbers));
      for (const [i, [loaded, total]] of seen.entries()) {
        expect(loaded).toBeGreaterThanOrEqual(seen[Math.max(0, i - 1)]![0]);
        expect(loaded).toBeLessThanOrEqual(total);
      }
      expect(seen.some(([loaded, total]) => loaded > 0 && loaded < total)).toBe(true);
      expect(seen.at(-1)![0]).toBe(seen.at(-1)![1]);
      expect(seen.at(-1)![1]).toBeGreaterThanOrEqual(2 * bigBytes);
    });

    it("cancelling ends a load, and leaves its key usable", async () => {
      const key = newKey();
      const weights = loadBig(key);
      let cancelledAt = 0;
      const watched = watch(weights, weights.ready(), (loaded) => {
        if (loaded === 0 || cancelledAt > 0) return;
        cancelledAt = loaded;
        weights.cancel();
      });
      expect(await code(watched)).toBe("IX_ABORTED");
      expect(cancelledAt).toBeGreaterThan(0);
      expect(weights.progress()[0]).toBeLessThan(weights.progress()[1]);
      expect(await code(loadBig(key).ready())).toBe("loaded");
    });

    it("a load that is cancelled before it begins does not begin", async () => {
      const weights = loadBig(newKey());
      weights.cancel();
      expect(await code(weights.ready())).toBe("IX_ABORTED");
    });

    it("two loads under one key share memory; the second one is there at once", async () => {
      const key = newKey();
      const first = loadBig(key);
      await first.ready();
      const before = process.memoryUsage.rss();
      const second = loadBig(key);
      await second.ready();
      expect(second.progress()).toEqual(first.progress());
      expect(process.memoryUsage.rss() - before).toBeLessThan(bigBytes);
      // without the file: nothing is read again
      const third = new binding!.Weights(device, bigPlan, [], [], key);
      expect(await code(third.ready())).toBe("loaded");
    });

    it("two loads at the same time: one works, the other waits for it, and can be cancelled while it waits", async () => {
      const key = newKey();
      const [first, second, third] = [loadBig(key), loadBig(key), loadBig(key)] as const;
      const before = process.memoryUsage.rss();
      const all = [first.ready(), second.ready(), third.ready()].map(code);
      third.cancel();
      const outcomes = await Promise.all(all);
      expect(outcomes.filter((outcome) => outcome === "loaded").length).toBeGreaterThanOrEqual(2);
      expect(outcomes[2]).toMatch(/^(IX_ABORTED|loaded)$/);
      expect(process.memoryUsage.rss() - before).toBeLessThan(4 * bigBytes);
    });
  });
});
