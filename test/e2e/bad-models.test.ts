// Bad model files through the public API: typed errors, right answers, and the process lives on.
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Model, Scheduler } from "../../lib/index.ts";
import { codeOf, demoPath, goldenRoot } from "./models.ts";

const scratch = mkdtempSync(join(tmpdir(), "inferx-bad-"));
const story = "Once upon a time";
let answer: string;

beforeAll(async () => {
  await using model = await Model.load(demoPath, { thread: "main" });
  answer = (await model.generate(story, { maxTokens: 12 })).text;
});
afterAll(async () => {
  await using model = await Model.load(demoPath, { thread: "main" });
  expect((await model.generate(story, { maxTokens: 12 })).text).toBe(answer);
  rmSync(scratch, { recursive: true, force: true });
});

function copyOfDemo(name: string): string {
  const path = join(scratch, name);
  copyFileSync(demoPath, path);
  return path;
}

function file(name: string, content: Uint8Array | string): string {
  const path = join(scratch, name);
  writeFileSync(path, content);
  return path;
}

const llama = (name: string) => readFileSync(join(goldenRoot, "llama", name));
const demo = (bytes: number) => readFileSync(demoPath).subarray(0, bytes);

/** A copy of the llama fixture with other files; undefined leaves one out. */
function folder(name: string, others: Record<string, Uint8Array | string | undefined>): string {
  const path = join(scratch, name);
  mkdirSync(path, { recursive: true });
  const files = { "config.json": llama("config.json"), "model.safetensors": llama("model.safetensors"), ...others };
  for (const [child, content] of Object.entries(files))
    if (content !== undefined) writeFileSync(join(path, child), content);
  return path;
}

function withConfig(name: string, changes: Record<string, unknown>): string {
  return folder(name, {
    "config.json": JSON.stringify({ ...JSON.parse(llama("config.json").toString()), ...changes }),
  });
}

describe("files", () => {
  test.each<[string, () => unknown, string]>([
    ["a missing path", () => join(scratch, "nowhere"), "IX_FILE_NOT_FOUND"],
    ["a missing .gguf", () => join(scratch, "nowhere.gguf"), "IX_FILE_NOT_FOUND"],
    ["an empty path", () => "", "IX_FILE_NOT_FOUND"],
    ["a NUL in the path", () => "a\0b.gguf", "IX_FILE_READ"],
    ["a path that is no string", () => 5, "IX_INVALID_ARGUMENT"],
    ["a folder without config.json", () => folder("config", { "config.json": undefined }), "IX_MODEL_CONFIG"],
    ["a folder without weights", () => folder("weights", { "model.safetensors": undefined }), "IX_FILE_NOT_FOUND"],
    ["a config that is no JSON", () => folder("json", { "config.json": "{" }), "IX_MODEL_FORMAT"],
    ["a config of nothing", () => folder("nothing", { "config.json": "{}" }), "IX_MODEL_CONFIG"],
    [
      "an unknown architecture",
      () => withConfig("arch", { architectures: ["Nobodys"] }),
      "IX_UNSUPPORTED_ARCHITECTURE",
    ],
    ["a config of another size", () => withConfig("size", { hidden_size: 96 }), "IX_MODEL_CONFIG"],
    ["a negative number of layers", () => withConfig("layers", { num_hidden_layers: -1 }), "IX_MODEL_CONFIG"],
    ["more layers than weights", () => withConfig("more", { num_hidden_layers: 50 }), "IX_MODEL_FORMAT"],
    ["heads that do not divide", () => withConfig("heads", { num_key_value_heads: 3 }), "IX_MODEL_CONFIG"],
    [
      "truncated weights",
      () => folder("short", { "model.safetensors": llama("model.safetensors").subarray(0, 1e5) }),
      "IX_MODEL_FORMAT",
    ],
    [
      "a damaged tokenizer",
      () => folder("tokenizer", { "tokenizer.json": '{"model": {"type": "BPE"}}' }),
      "IX_TOKENIZER",
    ],
    ["a file of another kind", () => file("x.txt", "hello"), "IX_MODEL_FORMAT"],
    ["an empty .gguf", () => file("empty.gguf", ""), "IX_MODEL_FORMAT"],
    ["a .gguf of 88 bytes", () => file("88.gguf", demo(88)), "IX_MODEL_FORMAT"],
    ["a truncated .gguf", () => file("cut.gguf", demo(4_000_000)), "IX_MODEL_FORMAT"],
  ])("%s", async (_, make, code) => {
    const path = make() as string;
    expect(await codeOf(Model.load(path, { thread: "main" }))).toBe(code);
    expect(await codeOf(Model.plan(path))).toBe(code);
  });

  test("a model without tokenizer takes token ids only", async () => {
    await using model = await Model.load(join(goldenRoot, "llama"), { thread: "main" });
    expect((await model.generate([1, 2, 3], { maxTokens: 4, ignoreEos: true })).tokens.length).toBe(4);
    expect(await codeOf(model.generate("text"))).toBe("IX_TOKENIZER");
    expect(await codeOf(model.chat("text"))).toBe("IX_TOKENIZER");
    expect(await codeOf(() => model.tokenize("text"))).toBe("IX_TOKENIZER");
    expect(await codeOf(model.generate([1], { maxTokens: 2, stop: "x" }))).toBe("IX_TOKENIZER");
  });

  test("a file that is replaced or truncated after loading changes nothing", async () => {
    const path = copyOfDemo("after.gguf");
    await using model = await Model.load(path);
    writeFileSync(path, Buffer.alloc(8_000_000, 7));
    expect((await model.generate(story, { maxTokens: 12 })).text).toBe(answer);
    truncateSync(path, 10);
    expect((await model.generate(story, { maxTokens: 12 })).text).toBe(answer);
    rmSync(path);
    expect((await model.chat("What is 12 + 30?")).text).toBe("12 + 30 = 42");
  });

  test.each<[string, (path: string) => void]>([
    ["truncated", (path) => truncateSync(path, 5_000_000)],
    ["emptied", (path) => truncateSync(path, 0)],
    ["replaced by zeros", (path) => writeFileSync(path, Buffer.alloc(readFileSync(path).length))],
    ["deleted", (path) => rmSync(path)],
    ["replaced by another file", (path) => renameSync(file("other.gguf", Buffer.alloc(9_000_000)), path)],
  ])("a file that is %s between reading its header and loading its weights", async (name, change) => {
    for (const thread of ["main", "worker"] as const) {
      const path = copyOfDemo(`${name}-${thread}.gguf`);
      await using model = await Model.load(path, { scheduler: false });
      change(path);
      const code = await codeOf(async () => {
        await using scheduler = new Scheduler(model, { thread });
        await scheduler.ready;
      });
      expect(["IX_FILE_CHANGED", "IX_FILE_NOT_FOUND"]).toContain(code);
    }
  });
});
