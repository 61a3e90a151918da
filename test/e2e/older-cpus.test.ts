// Processors without AVX2 and AVX-512, emulated: no illegal instruction anywhere from loading the addon to the answer, the kernels
// that fit are chosen, and the greedy answers are those of this machine. Needs qemu-user.
import { execFileSync, spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

const script = fileURLToPath(new URL("older-cpu.mjs", import.meta.url));
const emulator = "qemu-x86_64";
const hasEmulator = process.arch === "x64" && spawnSync(emulator, ["--version"]).status === 0;
if (!hasEmulator) console.warn(`older CPUs are not tested: ${emulator} (Debian: qemu-user) is not installed`);

const parse = (output: string) => JSON.parse(output.trim().split("\n").at(-1)!);

describe.skipIf(!hasEmulator)("older processors", () => {
  const here = hasEmulator ? parse(execFileSync(process.execPath, [script], { encoding: "utf8" })) : undefined;
  it.each([
    ["Nehalem", "scalar"],
    ["Haswell", "avx2"],
  ])("%s runs the %s kernels", { timeout: 120_000 }, (cpu, arch) => {
    const { status, signal, stdout, stderr } = spawnSync(emulator, ["-cpu", cpu, process.execPath, script], {
      encoding: "utf8",
    });
    expect({ status, signal, stderr: status === 0 ? "" : stderr }).toEqual({ status: 0, signal: null, stderr: "" });
    expect(parse(stdout)).toEqual({ ...here, arch });
  });
});
