// Compares the public types of the build with the committed types/inferx.d.ts, so that an API change is a visible diff.
//
//   node scripts/check-api.mjs            exit code 1 when they differ
//   node scripts/check-api.mjs --write    accepts the change
import { existsSync, readFileSync, writeFileSync } from "node:fs";

const root = new URL("../", import.meta.url);
const committed = new URL("types/inferx.d.ts", root);

/** The roll-up of dist/index.d.mts: shared chunks are put in place of their imports. */
function rollUp() {
  const entry = readFileSync(new URL("dist/index.d.mts", root), "utf8");
  const chunks = [...entry.matchAll(/from "\.\/([\w.-]+)\.mjs"/g)].map(([, name]) =>
    readFileSync(new URL(`dist/${name}.d.mts`, root), "utf8"),
  );
  const text = [...chunks, entry].join("\n").replace(/^\/\/# sourceMappingURL=.*$/gm, "");
  // Chunk names carry a hash of their contents.
  return `// Generated from the build by scripts/check-api.mjs --write; not edited by hand.\n${text.replace(/(from "\.\/[\w.]+)-[\w-]{8}(\.mjs")/g, "$1$2").trim()}\n`;
}

const current = rollUp();
if (process.argv.includes("--write")) writeFileSync(committed, current);
else if (!existsSync(committed) || readFileSync(committed, "utf8") !== current) {
  console.error(
    "The public types changed: look at the diff of `node scripts/check-api.mjs --write`, and note it in CHANGELOG.md.",
  );
  process.exit(1);
} else console.log("public API: as committed");
