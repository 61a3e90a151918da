// The doctor's look at inferx's own parts: the addon, its devices, the bundled model.
import { existsSync, statSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import type { NativeBinding } from "../../types/native.d.ts";
import { InferxError, toInferxError } from "../base/errors.ts";
import { packageRoot } from "../base/package-root.ts";
import { Model } from "../index.ts";
import type { Finding } from "./doctor.ts";
import { packageVersion } from "./version.ts";

const require = createRequire(import.meta.url);
const rebuild =
  "npm rebuild inferx, in a clone npm run build:native (needs cmake 3.25 and a C++20 compiler: apt-get install -y cmake g++ make)";

interface AddonCheck {
  finding: Finding;
  /** Undefined when it could not be loaded. */
  addon?: { file: string; native: NativeBinding };
}

export function checkAddon(): AddonCheck {
  const bad = (found: string, mend = rebuild): AddonCheck => ({
    finding: { name: "Addon", status: "bad", found, mend },
  });
  let file: string;
  try {
    file = (require("node-gyp-build") as { resolve(folder: string): string }).resolve(packageRoot());
  } catch {
    return bad(`no binary for ${process.platform}-${process.arch} below ${packageRoot()}`);
  }
  let native: NativeBinding;
  try {
    native = require(file) as NativeBinding;
  } catch (error) {
    const reason = (error as Error).message;
    const libc = /GLIBC_|GLIBCXX_/.test(reason) ? "the binary wants a newer C library, so build it here: " : "";
    return bad(`${file} does not load: ${reason}`, libc + rebuild);
  }
  const wanted = packageVersion();
  if (native.version !== wanted) return bad(`${file} is version ${native.version}, the package is ${wanted}`);
  return {
    finding: { name: "Addon", status: "ok", found: `${file}, version ${native.version}` },
    addon: { file, native },
  };
}

/** The first CUDA library in the order in which it is looked for, or "". */
function cudaLibrary(addonFile: string): string {
  const candidates = [process.env.INFERX_CUDA_LIBRARY];
  try {
    candidates.push(require.resolve(`@inferx/${process.platform}-${process.arch}-cuda/inferx_cuda.so`));
  } catch {
    // The optional package is not installed.
  }
  candidates.push(path.join(path.dirname(addonFile), "inferx_cuda.so"));
  return candidates.find((file) => file && existsSync(file)) ?? "";
}

/** One line for each device that can be used and for each backend that cannot. */
export function checkDevices({ addon }: AddonCheck): Finding[] {
  if (!addon) return [];
  const { usable, unusable } = addon.native.devices(cudaLibrary(addon.file));
  const findings: Finding[] = usable.map(({ kind, index, name, arch }) => ({
    name: `Device ${kind}`,
    status: "ok",
    found: `${name}${kind === "cpu" ? "" : ` (number ${index})`}, kernels for ${arch}`,
  }));
  for (const { kind, reason } of unusable)
    findings.push({ name: `Device ${kind}`, status: "note", found: `not usable: ${reason}` });
  if (usable.length === 0)
    findings.push({ name: "Devices", status: "bad", found: "none that can be used", mend: rebuild });
  return findings;
}

export async function checkBundledModel({ addon }: AddonCheck): Promise<Finding> {
  const file = path.join(packageRoot(), "models", "demo", "demo-q8_0.gguf");
  if (!existsSync(file)) {
    return {
      name: "Bundled model",
      status: "bad",
      found: `${file} is missing`,
      mend: "install the package again: npm install inferx",
    };
  }
  if (!addon) return { name: "Bundled model", status: "note", found: `${file}, not tried: it needs the addon` };
  try {
    await using model = await Model.load(file);
    const { text } = await model.chat("How much is 16 plus 4?", { maxTokens: 16, temperature: 0 });
    if (text.trim() === "") throw new InferxError("IX_INTERNAL", "the model loads but answers nothing");
    const { device } = model.info;
    return { name: "Bundled model", status: "ok", found: `answers on ${device.kind} with ${device.threads} threads` };
  } catch (error) {
    const { code, message, advice } = toInferxError(error);
    const damaged = code === "IX_MODEL_FORMAT" ? ` (${statSync(file).size} bytes; install the package again)` : "";
    return { name: "Bundled model", status: "bad", found: `${code}: ${message}${damaged}`, mend: advice };
  }
}
