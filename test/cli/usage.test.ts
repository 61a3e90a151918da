// The command line itself: help, wrong usage, models that cannot be loaded; exit codes and messages.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { inferx, root } from "./command.ts";

let folder: string;

beforeAll(() => {
  folder = mkdtempSync(path.join(tmpdir(), "inferx-cli-"));
  writeFileSync(path.join(folder, "tiny.gguf"), Buffer.alloc(88));
  writeFileSync(path.join(folder, "notes.txt"), "no model");
});
afterAll(() => rmSync(folder, { recursive: true }));

describe("help", () => {
  test.each([
    [["--help"]],
    [["run", "--help"]],
    [["chat", "--help"]],
    [["inspect", "--help"]],
    [["doctor", "--help"]],
    [["bench", "--help"]],
  ])("%j explains itself and the exit codes", async (args) => {
    const { code, stdout, stderr } = await inferx(args);
    expect(stdout).toMatch(/^Usage: inferx/);
    expect(stdout).toContain("Exit codes:");
    expect(stderr).toBe("");
    expect(code).toBe(0);
  });

  test("--version is the package's", async () => {
    const { version } = JSON.parse(readFileSync(path.join(root, "package.json"), "utf8"));
    expect(await inferx(["--version"])).toMatchObject({ code: 0, stdout: `${version}\n`, stderr: "" });
  });
});

describe("wrong usage is exit code 2, with a message on stderr", () => {
  test.each([
    [[], "Usage: inferx"],
    [["sing"], "inferx: unknown command 'sing'"],
    [["run"], "inferx: missing required argument 'prompt'"],
    [["run", "hello", "--top-q", "1"], "inferx: unknown option '--top-q'"],
    [["run", "hello", "--top-k", "many"], "'many' is invalid. It is not a number."],
    [["run", "hello", "--max-tokens", ""], "It is not a number."],
    [["run", "hello", "--seed", "-1"], "It is not a whole number."],
    [["run", "hello", "--cache-bytes", "much"], "It is not a size"],
    [["run", "hello", "--device", "abacus"], "Allowed choices are auto, cpu, cuda"],
    [["bench", "--requests", "1,0"], "It is not a whole number above 0."],
  ])("inferx %j", async (args, message) => {
    const { code, stdout, stderr } = await inferx(args);
    expect(stderr).toContain(message);
    expect(stdout).toBe("");
    expect(code).toBe(2);
  });
});

describe("a model that cannot be loaded is exit code 3, with code and advice and without a stack", () => {
  const cases = (): [string, string][] => [
    [path.join(folder, "absent.gguf"), "IX_FILE_NOT_FOUND"],
    [path.join(folder, "tiny.gguf"), "IX_MODEL_FORMAT"],
    [path.join(folder, "notes.txt"), "IX_MODEL_FORMAT"],
    [folder, "IX_MODEL_CONFIG"],
  ];
  test.each([
    ["run", (model: string) => ["run", "hello", "--model", model]],
    ["chat", (model: string) => ["chat", "--model", model]],
    ["inspect", (model: string) => ["inspect", model]],
    ["bench", (model: string) => ["bench", "--model", model]],
  ])("%s", async (_, args) => {
    for (const [model, errorCode] of cases()) {
      const { code, stdout, stderr } = await inferx(args(model));
      expect(stderr).toMatch(/^inferx: .+\n {2}.+\[IX_[A-Z_]+\]\n$/);
      expect(stderr).toContain(`[${errorCode}]`);
      expect(stdout).toBe("");
      expect(code).toBe(3);
    }
  });

  test("INFERX_DEBUG=1 adds the stack", async () => {
    const { code, stderr } = await inferx(["run", "hello", "--model", path.join(folder, "absent.gguf")], {
      env: { INFERX_DEBUG: "1" },
    });
    expect(stderr).toMatch(/\n {4}at /);
    expect(code).toBe(3);
  });
});

describe("without the addon", () => {
  // Neither build/Release nor a prebuild fits.
  const env = { PREBUILDS_ONLY: "1", LIBC: "none" };

  test("run names the command that repairs it", async () => {
    const { code, stderr } = await inferx(["run", "hello"], { env });
    expect(stderr).toContain("[IX_NATIVE_MISSING]");
    expect(stderr).toContain("npm rebuild inferx");
    expect(code).toBe(3);
  });

  test("doctor still works, and finds it", async () => {
    const { code, stdout } = await inferx(["doctor"], { env });
    expect(stdout).toMatch(/^BAD {3}Addon .*\n +-> npm rebuild inferx/m);
    expect(stdout).toMatch(/^ok {4}Node /m);
    expect(code).toBe(1);
  });
});
