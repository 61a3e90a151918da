// Ways to leave with work under way: each ends with the right exit code, soon, without a word on stderr.
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const scenarios = fileURLToPath(new URL("./exit-scenarios.mjs", import.meta.url));

test.each([
  ["natural end, model never disposed", "idle", 0],
  ["natural end after a disposed model", "disposed", 0],
  ["a generation alive that nobody awaits", "unawaited", 0],
  ["an iterator left half-way", "half-iterated", 0],
  ["process.exit() in a step's callback", "exit-in-chunk", 5],
  ["process.exit() while loading", "exit-while-loading", 5],
  ["process.exit() in an exit listener's neighbour", "exit-code", 6],
  ["an uncaught exception during a generation", "uncaught", 1],
  ["worker.terminate() during a generation", "worker-terminate", 0],
  ["process.exit() in a worker during a generation", "worker-exit", 0],
  ["twenty workers, one after the other", "worker-restarts", 0],
])("%s", async (_, scenario, expected) => {
  const child = spawn(process.execPath, [scenarios, scenario], { stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
  }
  const hung = setTimeout(() => child.kill("SIGKILL"), 45_000);
  const ended = await new Promise((resolve) => {
    child.once("close", (code, signal) => resolve({ code, signal }));
  });
  clearTimeout(hung);
  if (scenario === "uncaught") expect(output).toContain("Error: on purpose");
  else expect(output).toBe("");
  expect(ended).toEqual({ code: expected, signal: null });
});

test("SIGTERM ends a busy process at once", async () => {
  const child = spawn(process.execPath, [scenarios, "busy"], { stdio: ["ignore", "pipe", "inherit"] });
  await new Promise((resolve) => child.stdout.once("data", resolve));
  child.kill("SIGTERM");
  const signal = await new Promise((resolve) => {
    child.once("close", (_, by) => resolve(by));
  });
  expect(signal).toBe("SIGTERM");
});
