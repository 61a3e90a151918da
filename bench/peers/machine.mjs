// What the machine can do at most: probe.cpp, built when first asked for. Not needed for the ratios, only for fractions.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, statSync } from "node:fs";
import os from "node:os";
import { fileURLToPath } from "node:url";

const source = fileURLToPath(new URL("./probe.cpp", import.meta.url));
const program = fileURLToPath(new URL("../.models/probe", import.meta.url));

/**
 * `{readBytes, int8Operations, bf16Operations}` a second on all usable cores; undefined, with a message, where it cannot be built.
 */
export function probe() {
  if (!existsSync(program) || statSync(program).mtimeMs < statSync(source).mtimeMs) {
    mkdirSync(fileURLToPath(new URL("../.models/", import.meta.url)), { recursive: true });
    const flags = ["-O3", "-march=native", "-std=c++20", "-pthread"];
    const { status, stderr } = spawnSync("g++", [...flags, source, "-o", program], { encoding: "utf8" });
    if (status !== 0) {
      process.stderr.write(
        `no fractions of the machine's limits: g++ cannot build probe.cpp ${stderr ?? "(not found)"}\n`,
      );
      return undefined;
    }
  }
  const { status, stdout, stderr } = spawnSync(program, [String(os.availableParallelism())], { encoding: "utf8" });
  if (status !== 0) throw new Error(`probe: ${stderr}`);
  return JSON.parse(stdout);
}
