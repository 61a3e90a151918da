// How a device is found, and what is said where the GPU is not: each reason that a machine can have, by libraries that stand in for the
// CUDA backend (test/fixtures/backends/stub.c).
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { InferxError, Model } from "../../lib/index.ts";
import { addon } from "../device.ts";
import { repository } from "./models.ts";

const compiler = ["cc", "gcc", "clang"].find((name) => spawnSync(name, ["--version"]).status === 0);
const missing =
  addon() === undefined ? "the addon is not built" : compiler === undefined ? "there is no C compiler" : "";
const title = `finding devices${missing && ` (SKIPPED: ${missing})`}`;

describe.skipIf(missing !== "")(title, () => {
  const given = process.env.INFERX_CUDA_LIBRARY;
  let folder: string;
  const stub = (answer: string): string => {
    const library = join(folder, `${answer}.so`);
    const source = join(repository, "test/fixtures/backends/stub.c");
    const flags = ["-shared", "-fPIC", `-I${join(repository, "csrc")}`, `-DANSWER=${answer}`];
    execFileSync(compiler!, [...flags, source, "-o", library]);
    return library;
  };
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "inferx-devices-"));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  afterEach(() => {
    if (given === undefined) delete process.env.INFERX_CUDA_LIBRARY;
    else process.env.INFERX_CUDA_LIBRARY = given;
  });

  const load = (device: "auto" | "cuda" | "cpu") => Model.load(undefined, { device, threads: 1, thread: "main" });
  async function failure(device: "auto" | "cuda"): Promise<InferxError> {
    const error = await load(device).then(
      (model) => model.dispose().then(() => undefined),
      (reason) => reason,
    );
    expect(InferxError.is(error)).toBe(true);
    return error;
  }
  /** Asked for by name the reason is the error, with what repairs it; `auto` takes the CPU and keeps the reason. */
  async function expectAbsent(code: string, reason: RegExp): Promise<void> {
    const error = await failure("cuda");
    expect(error.code).toBe(code);
    expect(error.message).toMatch(reason);
    const model = await load("auto");
    expect(model.info.device).toMatchObject({ kind: "cpu", note: expect.stringMatching(reason) });
    await model.dispose();
  }

  it("the library's path leads nowhere", async () => {
    process.env.INFERX_CUDA_LIBRARY = join(folder, "none.so");
    await expectAbsent("IX_NO_DEVICE", /cannot be opened.*none\.so/);
  });
  it("the library is something else", async () => {
    process.env.INFERX_CUDA_LIBRARY = join(folder, "text.so");
    writeFileSync(process.env.INFERX_CUDA_LIBRARY, "not a library");
    await expectAbsent("IX_NO_DEVICE", /cannot be opened/);
  });
  it("the library is of another version", async () => {
    process.env.INFERX_CUDA_LIBRARY = stub("OTHER_VERSION");
    await expectAbsent("IX_NO_DEVICE", /another version.*install the version that matches/);
  });
  it("there is no driver", async () => {
    process.env.INFERX_CUDA_LIBRARY = stub("NO_DRIVER");
    await expectAbsent("IX_NO_DEVICE", /no driver was found; install one/);
  });
  it("the GPU has no kernels for the model", async () => {
    process.env.INFERX_CUDA_LIBRARY = stub("SOUND");
    await expectAbsent("IX_NO_KERNEL", /kernel/);
  });
  it("a GPU that met an error is not passed over in silence", async () => {
    process.env.INFERX_CUDA_LIBRARY = stub("BROKEN");
    for (const device of ["cuda", "auto"] as const) {
      const error = await failure(device);
      expect(error.code).toBe("IX_DEVICE");
      expect(error.message).toMatch(/dispose/);
    }
  });
  it("a CPU asked for by name needs no reason", async () => {
    process.env.INFERX_CUDA_LIBRARY = stub("BROKEN");
    const model = await load("cpu");
    expect(model.info.device.kind).toBe("cpu");
    expect(model.info.device).not.toHaveProperty("note");
    await model.dispose();
  });
});
