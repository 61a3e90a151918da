// Where the package lies on disk: the folder of its package.json, from source and from the build alike.
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { InferxError } from "./errors.ts";

let found: string | undefined;

/** Absolute path of the package's folder. */
export function packageRoot(): string {
  for (let folder = dirname(fileURLToPath(import.meta.url)); found === undefined; folder = dirname(folder)) {
    const file = join(folder, "package.json");
    if (existsSync(file) && JSON.parse(readFileSync(file, "utf8")).name === "inferx") found = folder;
    if (dirname(folder) === folder) throw new InferxError("IX_INTERNAL", "the package's folder was not found");
  }
  return found;
}
