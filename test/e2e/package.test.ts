// The package as a user gets it: what npm would ship, with the addon as a prebuild, in a folder of its own. Nothing is compiled.
import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { addonPath, native } from "../../lib/native/binding.ts";
import { repository } from "./models.ts";

function built(): boolean {
  try {
    native();
    return existsSync(join(repository, "dist/index.mjs"));
  } catch {
    return false;
  }
}
const ready = built() && process.platform === "linux";
const title = ready ? "the package" : "the package (SKIPPED: needs Linux, the addon and dist/: npm run build)";

describe.skipIf(!ready)(title, () => {
  let app: string; // a user's folder
  let installed: string; // the package in it
  let files: string[];
  const prebuilds = () => join(installed, "prebuilds", `${process.platform}-${process.arch}`);

  beforeAll(() => {
    const listed = execFileSync("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], {
      cwd: repository,
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
    });
    files = (JSON.parse(listed)[0].files as { path: string }[]).map(({ path }) => path);
    app = mkdtempSync(join(tmpdir(), "inferx-package-"));
    const modules = join(app, "node_modules");
    installed = join(modules, "inferx");
    for (const file of files.filter((path) => !path.startsWith("prebuilds/"))) {
      mkdirSync(dirname(join(installed, file)), { recursive: true });
      cpSync(join(repository, file), join(installed, file));
    }
    mkdirSync(prebuilds(), { recursive: true });
    cpSync(addonPath(), join(prebuilds(), "inferx.glibc.node"));
    for (const name of readdirSync(join(repository, "node_modules"))) {
      if (!name.startsWith(".")) symlinkSync(join(repository, "node_modules", name), join(modules, name));
    }
  });
  afterAll(() => rmSync(app, { recursive: true, force: true }));

  /** Runs a script of the user's. */
  function run(name: string, text: string) {
    const path = join(app, name);
    writeFileSync(path, text);
    return node(path);
  }
  function node(...args: string[]) {
    const env = { ...process.env, PREBUILDS_ONLY: "1" };
    const { status, signal, stdout, stderr } = spawnSync(process.execPath, args, {
      cwd: app,
      env,
      encoding: "utf8",
      timeout: 60_000,
    });
    return { status, signal, stdout: stdout.trim(), stderr };
  }
  const ask =
    'const m = await Model.load(); const r = await m.generate("Once upon", { maxTokens: 4 }); await m.dispose();';

  it("ships sources, builds and the bundled model, and nothing else", () => {
    expect(files).toEqual(
      expect.arrayContaining(["dist/index.mjs", "dist/index.cjs", "dist/worker.mjs", "binding.gyp"]),
    );
    const shipped =
      /^(dist|csrc|cmake|models|prebuilds)\/|^(package\.json|README\.md|LICENSE|CHANGELOG\.md|binding\.gyp|CMakeLists\.txt|scripts\/build-native\.cjs)$/;
    expect(files.filter((path) => !shipped.test(path))).toEqual([]);
  });

  it("answers after import and after require, with the prebuild, compiling nothing", () => {
    const esm = run("esm.mjs", `import { Model } from "inferx"; ${ask} console.log(r.text);`);
    const cjs = run("cjs.cjs", `const { Model } = require("inferx"); (async () => { ${ask} console.log(r.text); })();`);
    expect(esm).toMatchObject({ status: 0, stderr: "" });
    expect(esm.stdout.length).toBeGreaterThan(0);
    expect(cjs).toEqual(esm);
    expect(existsSync(join(installed, "build"))).toBe(false);
  });

  it("answers in a program that stands on the command line", () => {
    const text = `import { Model } from "inferx"; ${ask} console.log(r.text);`;
    expect(node("--input-type=module", "-e", text)).toEqual(run("esm.mjs", text));
  });

  it("loads in both module systems of one process, in eight workers at once, and in another context", () => {
    const many = run(
      "many.mjs",
      `import { Worker } from "node:worker_threads";
       import { createRequire } from "node:module";
       import vm from "node:vm";
       import { Model } from "inferx";
       const require = createRequire(import.meta.url);
       require("inferx");
       const addon = require.resolve(${JSON.stringify(join(prebuilds(), "inferx.glibc.node"))});
       const context = vm.createContext({ require, addon });
       const versions = [0, 1].map(() => vm.runInContext("require(addon).version", context));
       const text = 'require("node:worker_threads").parentPort.postMessage(require(' + JSON.stringify(addon) + ').version)';
       const workers = Array.from({ length: 8 }, () => new Promise((resolve, reject) => {
         let version;
         new Worker(text, { eval: true }).on("message", (v) => { version = v; }).on("error", reject).on("exit", () => resolve(version));
       }));
       versions.push(...(await Promise.all(workers)));
       ${ask}
       console.log(versions.length, new Set(versions).size, r.text.length > 0);`,
    );
    expect(many).toEqual({ status: 0, signal: null, stdout: "10 1 true", stderr: "" });
  });

  it("ends cleanly when the process or its worker ends in the middle of an answer", () => {
    const exit = run(
      "exit.mjs",
      `import { Model } from "inferx"; const m = await Model.load();
       for await (const _ of m.generate("Once upon", { maxTokens: 500 })) process.exit(7);`,
    );
    expect(exit).toEqual({ status: 7, signal: null, stdout: "", stderr: "" });
    const terminated = run(
      "terminate.mjs",
      `import { Worker } from "node:worker_threads"; import { pathToFileURL } from "node:url";
       const text = \`import { parentPort } from "node:worker_threads"; import { Model } from "inferx"; const m = await Model.load();
         for await (const _ of m.generate("Once upon", { maxTokens: 500 })) parentPort.postMessage(1);\`;
       (await import("node:fs")).writeFileSync("inner.mjs", text);
       const w = new Worker(pathToFileURL("inner.mjs"));
       await new Promise((resolve, reject) => { w.once("message", resolve); w.once("error", reject); });
       console.log(await w.terminate());`,
    );
    expect(terminated).toEqual({ status: 0, signal: null, stdout: "1", stderr: "" });
  });

  it("says how to repair a missing binary", () => {
    rmSync(prebuilds(), { recursive: true });
    const missing = run(
      "missing.mjs",
      `import { Model } from "inferx"; await Model.load().then(() => console.log("loaded"), (e) => console.log(e.code, e.message));`,
    );
    expect(missing).toMatchObject({ status: 0, stderr: "" });
    expect(missing.stdout).toMatch(/^IX_NATIVE_MISSING .*npm rebuild inferx/);
  });
});
