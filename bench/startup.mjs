// From the start of a process to the first token, what that time is made of, and the memory that loading took: for the
// bundled model and any files named. Each round is a process of its own; files are read from a warm page cache.
//
//   node bench/startup.mjs [--rounds 11] [--save] [model.gguf ...]
import { spawnSync } from "node:child_process";
import { closeSync, openSync, readSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import { basename } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { median, report, round } from "./report.mjs";

/** What reading the file takes at least: piece by piece into one buffer that stays in the caches. */
function readMs(file) {
  const buffer = Buffer.alloc(1 << 20);
  const start = performance.now();
  const descriptor = openSync(file);
  while (readSync(descriptor, buffer) > 0);
  closeSync(descriptor);
  return performance.now() - start;
}

/** One start. Memory is what the process grew by while the model loaded, most and in the end, as parts of the file. */
async function measure(file) {
  const start = performance.now();
  const { Model } = await import("../dist/index.mjs");
  const imported = performance.now();
  // The library loads the addon at its first use; here it is loaded alone, to be timed.
  createRequire(import.meta.url)("node-gyp-build")(fileURLToPath(new URL("..", import.meta.url)));
  const addon = performance.now();
  const read = readMs(file);
  const before = process.memoryUsage.rss();
  const loading = performance.now();
  let packing;
  const onProgress = ({ phase }) => {
    if (phase === "weights") packing ??= performance.now();
  };
  const model = await Model.load(file, { onProgress });
  const loaded = performance.now();
  const grown = process.memoryUsage.rss() - before;
  const mostGrown = process.resourceUsage().maxRSS * 1024 - before;
  await model.generate("Once upon a time", { maxTokens: 1, temperature: 0 });
  const answered = performance.now();
  await model.dispose();
  const { size } = statSync(file);
  return {
    // performance.now() counts from the start of the process.
    ms: {
      node: start,
      import: imported - start,
      addon: addon - imported,
      read,
      load: loaded - loading,
      loadWeights: loaded - packing, // the part of it after headers, vocabulary and plan
      firstToken: answered - loaded,
      total: answered - read,
    },
    memory: { end: grown / size, most: mostGrown / size, beyondFileMB: (grown - size) / 1e6 },
  };
}

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { rounds: { type: "string", default: "11" }, save: { type: "boolean" }, child: { type: "string" } },
});

if (options.child) {
  process.stdout.write(JSON.stringify(await measure(options.child)));
} else {
  const bundled = fileURLToPath(new URL("../models/demo/demo-q8_0.gguf", import.meta.url));
  const rounds = Number(options.rounds);
  const models = [bundled, ...positionals].map((file) => {
    readMs(file); // warms the page cache
    const runs = Array.from({ length: rounds }, () => {
      const program = fileURLToPath(import.meta.url);
      const { status, stdout, stderr } = spawnSync(process.execPath, [program, "--child", file], { encoding: "utf8" });
      if (status !== 0) throw new Error(stderr);
      return JSON.parse(stdout);
    });
    const medians = (part, digits) =>
      Object.fromEntries(
        Object.keys(runs[0][part]).map((key) => [key, round(median(runs.map((run) => run[part][key])), digits)]),
      );
    const ms = medians("ms", 1);
    const goalMs = round(Math.max(1.3 * ms.read, 300), 0);
    return {
      model: basename(file),
      fileMB: round(statSync(file).size / 1e6, 0),
      medianMs: ms,
      goalMs: { import: 60, addon: 30, load: goalMs },
      memory: medians("memory", 2),
      memoryGoal: { end: 1.1, most: 1.3 },
    };
  });
  report("startup", { rounds, models });
}
