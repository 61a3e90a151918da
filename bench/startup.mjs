// From the start of a process to the first token of the bundled model, and what that time is made of.
//
//   node bench/startup.mjs [rounds] [--save]
import { spawnSync } from "node:child_process";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { median, report, round } from "./report.mjs";

if (process.argv[2] === "child") {
  const start = performance.now();
  const { Model } = await import("../dist/index.mjs");
  const imported = performance.now();
  // The library loads the addon at its first use; here it is loaded alone, to be timed.
  createRequire(import.meta.url)("node-gyp-build")(fileURLToPath(new URL("..", import.meta.url)));
  const addon = performance.now();
  const model = await Model.load();
  const loaded = performance.now();
  await model.generate("Once upon a time", { maxTokens: 1, temperature: 0 });
  const answered = performance.now();
  // performance.now() counts from the start of the process.
  process.stdout.write(
    JSON.stringify({
      node: start,
      import: imported - start,
      addon: addon - imported,
      load: loaded - addon,
      firstToken: answered - loaded,
      total: answered,
    }),
  );
  await model.dispose();
} else {
  const rounds = Number(process.argv[2]) || 11;
  const runs = Array.from({ length: rounds }, () => {
    const { status, stdout, stderr } = spawnSync(process.execPath, [fileURLToPath(import.meta.url), "child"], {
      encoding: "utf8",
    });
    if (status !== 0) throw new Error(stderr);
    return JSON.parse(stdout);
  });
  const medianMs = Object.fromEntries(
    Object.keys(runs[0]).map((key) => [key, round(median(runs.map((run) => run[key])), 1)]),
  );
  report("startup", { rounds, medianMs });
}
