// Loads the addon: the prebuilt one for this platform, or the one that was built here.
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import load from "node-gyp-build";
import type { NativeBinding } from "../../types/native.d.ts";
import { InferxError } from "../base/errors.ts";
import { packageRoot } from "../base/package-root.ts";

let loaded: NativeBinding | undefined;

/**
 * The addon; loaded at the first call.
 * @throws IX_NATIVE_MISSING naming the command that repairs it.
 */
export function native(): NativeBinding {
  if (loaded) return loaded;
  const root = packageRoot();
  try {
    loaded = load(root) as NativeBinding;
  } catch (error) {
    const reason = error instanceof Error ? error.message.split("\n")[0] : String(error);
    throw new InferxError(
      "IX_NATIVE_MISSING",
      `the native addon could not be loaded for ${process.platform}-${process.arch}: ${reason}. Run \`npm rebuild inferx\` (in a clone: \`npm run build:native\`); it needs cmake 3.25 and a C++20 compiler.`,
      { platform: process.platform, arch: process.arch },
      { cause: error },
    );
  }
  return loaded;
}

/** Path of the addon's file. */
export function addonPath(): string {
  return load.resolve(packageRoot());
}

/** Path of the CUDA library: INFERX_CUDA_LIBRARY, the optional platform package, or beside the addon; "" if there is none. */
export function cudaLibrary(): string {
  const named = process.env.INFERX_CUDA_LIBRARY;
  if (named) return named;
  try {
    return createRequire(join(packageRoot(), "package.json")).resolve(
      `@inferx/${process.platform}-${process.arch}-cuda/inferx_cuda.so`,
    );
  } catch {
    const beside = join(dirname(addonPath()), "inferx_cuda.so");
    return existsSync(beside) ? beside : "";
  }
}
