// Memory comes back: a process that loads and disposes, or answers, many times does not grow.
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const scenarios = fileURLToPath(new URL("./memory-scenarios.mjs", import.meta.url));

/** Growth of resident memory in MiB between the end of the warm-up and the end of the run. */
test.each([
  ["load and dispose, 40 times", "load", 40, 32],
  ["load and dispose in worker threads, 20 times", "worker", 20, 32],
  ["1000 short requests", "requests", 1000, 24],
  ["300 requests, each aborted in the middle", "aborts", 300, 24],
  ["300 requests with log-probabilities", "logprobs", 300, 24],
])("%s", { timeout: 240_000 }, (_, scenario, times, boundMiB) => {
  const args = ["--expose-gc", scenarios, scenario, String(times)];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8", timeout: 220_000 });
  expect(stderr).toBe("");
  expect(status).toBe(0);
  const { warmMiB, endMiB, usedBlocks } = JSON.parse(stdout) as { warmMiB: number; endMiB: number; usedBlocks: number };
  expect(usedBlocks).toBe(0);
  expect(endMiB - warmMiB, `${warmMiB} MiB after the warm-up, ${endMiB} MiB at the end`).toBeLessThan(boundMiB);
});
