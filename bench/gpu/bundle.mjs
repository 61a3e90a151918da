// Makes carry/gpu/: the tests that run on a GPU in one file for plain node, the trap of faults.mjs in another, and node itself, small enough
// to take to a machine that has a GPU but neither. Beside them goes build/Release with the addon and the CUDA library.
import { execFileSync } from "node:child_process";
import { copyFileSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { rolldown } from "rolldown";

const root = join(import.meta.dirname, "../..");
const out = join(root, "carry/gpu");
mkdirSync(out, { recursive: true });
const entry = join(out, "entry.mjs");
const tests = [
  "ops/kernels",
  "e2e/golden",
  "e2e/golden-seeded",
  "e2e/deterministic",
  "e2e/checked-mode",
  "e2e/random-steps",
];
writeFileSync(entry, tests.map((test) => `import "../../test/${test}.test.ts";\n`).join(""));
const bundle = await rolldown({
  input: { tests: entry, trap: join(root, "bench/gpu/trap.ts") },
  platform: "node",
  resolve: { alias: { vitest: join(import.meta.dirname, "test-runner.ts") } },
  transform: { target: "node20", define: { "import.meta.dirname": "globalThis.testFolder" } },
});
const banner = [
  'import * as nodeModule from "node:module";',
  "const require = nodeModule.createRequire(import.meta.url);",
  'globalThis.testFolder = process.cwd() + "/test/e2e";',
].join("\n");
await bundle.write({ dir: out, entryFileNames: "[name].mjs", chunkFileNames: "[name].mjs", format: "esm", banner });
rmSync(entry);
if (!process.argv.includes("--no-node")) {
  const node = join(out, "node");
  copyFileSync(process.execPath, node);
  execFileSync("strip", [node]);
  execFileSync("xz", ["-3", "-f", "-T0", node]);
}
