// The layers script finds planted violations and finds none in this repository.
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, expect, test } from "vitest";

const script = fileURLToPath(new URL("../../scripts/check-layers.mjs", import.meta.url));
const planted: string[] = [];

afterEach(() => {
  for (const folder of planted.splice(0)) rmSync(folder, { recursive: true });
});

function check(files?: Record<string, string>): { status: number | null; output: string } {
  const args = [script];
  if (files) {
    const root = mkdtempSync(path.join(tmpdir(), "inferx-layers-"));
    planted.push(root);
    for (const [file, text] of Object.entries(files)) {
      mkdirSync(path.dirname(path.join(root, file)), { recursive: true });
      writeFileSync(path.join(root, file), text);
    }
    args.push(root);
  }
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
  return { status, output: stdout + stderr };
}

test("this repository breaks no rule", () => {
  const { status, output } = check();
  expect(output).toContain("in order");
  expect(status).toBe(0);
});

test("allowed arrows pass", () => {
  const { status, output } = check({
    "lib/base/errors.ts": "export const a = 1;\n",
    "lib/sched/queue.ts":
      'import { a } from "../base/errors.ts";\nimport { b } from "../cache/pool.ts";\nexport const c = a + b;\n',
    "lib/cache/pool.ts": "export const b = 1;\n",
    "lib/api/model.ts": 'import type { Architecture } from "../models/index.ts";\nexport let x: Architecture;\n',
    "csrc/cpu/norm/rms_norm.cpp": '#include "core/error.h"\n#include "cpu/kernel.h"\n#include <vector>\n',
  });
  expect(output).toContain("in order");
  expect(status).toBe(0);
});

test.each([
  [
    "an upward import",
    "lib/cache/a.ts",
    'import { b } from "../sched/b.ts";\nb();\n',
    "a.ts:1: cache may not import sched",
  ],
  [
    "an import of a neighbour",
    "lib/text/a.ts",
    '\nimport { b } from "../ir/b.ts";\nb();\n',
    "a.ts:2: text may not import ir",
  ],
  ["a late import", "lib/ir/a.ts", 'export const a = () => import("../engine/b.ts");\n', "ir may not import engine"],
  ["a re-export", "lib/sched/a.ts", 'export { b } from "../engine/b.ts";\n', "sched may not import engine"],
  [
    "a type from above",
    "lib/quant/a.ts",
    'import type { B } from "../api/b.ts";\nexport let x: B;\n',
    "quant may not import api",
  ],
  [
    "a value where only types may come from",
    "lib/api/a.ts",
    'import { b } from "../ir/b.ts";\nb();\n',
    "api may not import ir",
  ],
  [
    "the command line inside the engine",
    "lib/cli/a.ts",
    'import { b } from "../engine/b.ts";\nb();\n',
    "cli may not import engine",
  ],
  ["an unknown layer", "lib/tools/a.ts", "export const a = 1;\n", "lib/tools is no layer"],
  ["an import from outside", "lib/ir/a.ts", 'import { b } from "../../test/b.ts";\nb();\n', "outside lib/"],
  ["a default export", "lib/ir/a.ts", "export default function a() {}\n", "default export"],
  [
    "a forbidden class name",
    "lib/sched/a.ts",
    "export class RequestManager {}\n",
    'RequestManager is named after "Manager"',
  ],
  ["a forbidden file name", "lib/sched/queue-utils.ts", "export const a = 1;\n", 'named after "utils"'],
  ["a camelCase file", "lib/sched/queueState.ts", "export const a = 1;\n", "kebab-case"],
  ["a whole module in the public API", "lib/index.ts", 'export * from "./api/model.ts";\n', "exports a whole module"],
  [
    "too many public names",
    "lib/index.ts",
    `export { ${Array.from({ length: 36 }, (_, i) => `a${i}`).join(", ")} } from "./api/a.ts";\n`,
    "36 names",
  ],
  ["N-API in core", "csrc/core/a.cpp", "#include <napi.h>\n", "core may not include napi.h"],
  ["CUDA in core", "csrc/core/a.cpp", "#include <cuda_runtime.h>\n", "core may not include cuda_runtime.h"],
  ["a kernel in node", "csrc/node/a.cpp", '#include "cpu/kernel.h"\n', "node may not include cpu"],
  ["cuda in cpu", "csrc/cpu/norm/a.cpp", '#include "cuda/entry.h"\n', "cpu may not include cuda"],
  ["core knowing the cpu", "csrc/core/a.h", '#include "cpu/kernel.h"\n', "core may not include cpu"],
  ["a C++ file in kebab-case", "csrc/core/thread-pool.cpp", "\n", "snake_case"],
  ["a C++ class name", "csrc/core/a.h", "class WeightHandler {\n};\n", "WeightHandler is named after"],
])("finds %s", (_, file, text, message) => {
  const { status, output } = check({ [file]: text });
  expect(output).toContain(message);
  expect(status).toBe(1);
});
