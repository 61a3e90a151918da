// Version of the package, as in package.json.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { packageRoot } from "../base/package-root.ts";

export function packageVersion(): string {
  const { version } = JSON.parse(readFileSync(join(packageRoot(), "package.json"), "utf8")) as { version: string };
  return version;
}
