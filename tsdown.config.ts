import { defineConfig } from "tsdown";

export default defineConfig({
  entry: { index: "lib/index.ts", worker: "lib/engine/worker.ts", cli: "lib/cli/main.ts" },
  outDir: "dist",
  format: ["esm", "cjs"],
  platform: "node",
  target: "node20",
  dts: true,
  sourcemap: true,
  shims: true,
  fixedExtension: true,
});
