// Checks the arrows of the architecture: which folder may import which, in TypeScript and in C++; names of files and
// classes; how many names the public API has. Long files are listed as a warning only.
//
//   node scripts/check-layers.mjs [root]      exit code 1 when a rule is broken
import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";

/** Folder of lib/ to the folders that its files may import, besides their own and base. */
const layers = {
  base: [],
  native: [],
  formats: [],
  text: [],
  ir: [],
  quant: ["ir", "formats"],
  models: ["ir", "formats"],
  passes: ["quant", "ir"],
  cache: [],
  compile: ["passes", "models", "quant", "formats", "ir"],
  sched: ["cache"],
  engine: ["sched", "cache", "compile", "native", "text"],
  api: ["engine"],
  quantizer: ["engine", "quant", "formats"],
  engines: ["index", "api"],
  server: ["index", "engines", "api"],
  cli: ["index", "api", "quantizer", "engines", "server"],
  // lib/index.ts: what the package exports.
  index: ["api", "models", "engines"],
};

/** Folders that a layer may name in `import type` only. */
const typeOnly = {
  api: ["native", "formats", "text", "ir", "quant", "models", "passes", "cache", "compile", "sched"],
};

/** Folder of csrc/ to the folders that its files may include, besides their own. */
const nativeLayers = { core: [], text: ["core"], cpu: ["core"], cuda: ["core"], node: ["core", "text"] };

const nodeHeaders = /^(napi|node_api|node|js_native_api|uv|v8)\b/;
const cudaHeaders = /^(cuda|cublas|nccl|nvtx|cooperative_groups|curand)/;

const bannedWord = /^(manager|helper|util|handler|common|misc)s?$/i;
const maxPublicNames = 35;
const sizeGuide = { ".ts": 250, ".h": 300, ".cpp": 300, ".cc": 300, ".cu": 450, ".cuh": 450 };

const words = (name) => name.split(/[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])/);
const banned = (name) => words(name).find((word) => bannedWord.test(word));

/** Files below `folder` as paths relative to `root`, with forward slashes. */
function filesBelow(root, folder) {
  const start = path.join(root, folder);
  if (!existsSync(start)) return [];
  return readdirSync(start, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) =>
      path.relative(root, path.join(entry.parentPath ?? entry.path, entry.name)).replaceAll(path.sep, "/"),
    )
    .filter((file) => !file.includes("node_modules/"))
    .sort();
}

/** Every module that a file names: specifier, line, and whether only types come from it. */
function importsOf(source) {
  const found = [];
  const add = (node, specifier, type) => {
    if (!specifier || !ts.isStringLiteralLike(specifier)) return;
    found.push({
      specifier: specifier.text,
      type,
      line: source.getLineAndCharacterOfPosition(node.getStart(source)).line + 1,
    });
  };
  const visit = (node) => {
    if (ts.isImportDeclaration(node)) {
      add(node, node.moduleSpecifier, node.importClause?.phaseModifier === ts.SyntaxKind.TypeKeyword);
    } else if (ts.isExportDeclaration(node)) add(node, node.moduleSpecifier, node.isTypeOnly);
    else if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument)) add(node, node.argument.literal, true);
    else if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword)
      add(node, node.arguments[0], false);
    ts.forEachChild(node, visit);
  };
  visit(source);
  return found;
}

/** lib/<layer>/…, or "index" for lib/index.ts. */
function layerOf(file) {
  const [, layer, ...rest] = file.split("/");
  return rest.length > 0 ? layer : path.posix.basename(layer, ".ts");
}

function checkTypeScriptFile(root, file, report) {
  const source = ts.createSourceFile(file, readFileSync(path.join(root, file), "utf8"), ts.ScriptTarget.Latest, true);
  const layer = layerOf(file);
  const allowed = layers[layer];
  if (!allowed) return report(`${file}: lib/${layer} is no layer of docs/map.md`);
  for (const { specifier, type, line } of importsOf(source)) {
    if (!specifier.startsWith(".")) continue;
    const target = path.posix.join(path.posix.dirname(file), specifier);
    if (!target.startsWith("lib/")) {
      if (type && target.startsWith("types/")) continue; // the contract of the addon
      report(`${file}:${line}: imports ${specifier}, which lies outside lib/`);
      continue;
    }
    const to = layerOf(target);
    if (to === layer || to === "base" || allowed.includes(to)) continue;
    if (type && typeOnly[layer]?.includes(to)) continue;
    report(`${file}:${line}: ${layer} may not import ${to} (${[...allowed, "base"].join(", ")} only)`);
  }
  const visit = (node) => {
    if (
      ts.isExportAssignment(node) ||
      node.modifiers?.some((modifier) => modifier.kind === ts.SyntaxKind.DefaultKeyword)
    ) {
      report(`${file}: has a default export`);
    }
    if ((ts.isClassDeclaration(node) || ts.isInterfaceDeclaration(node)) && node.name) {
      const word = banned(node.name.text);
      if (word) report(`${file}: ${node.name.text} is named after "${word}"`);
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
  if (layer === "index") checkPublicNames(source, file, report);
}

function checkPublicNames(source, file, report) {
  let names = 0;
  for (const statement of source.statements) {
    if (!ts.isExportDeclaration(statement)) continue;
    if (!statement.exportClause || !ts.isNamedExports(statement.exportClause))
      report(`${file}: exports a whole module; name what is public`);
    else names += statement.exportClause.elements.length;
  }
  if (names > maxPublicNames) report(`${file}: exports ${names} names, at most ${maxPublicNames} are allowed`);
}

function checkNativeFile(root, file, report) {
  const text = readFileSync(path.join(root, file), "utf8");
  const layer = file.split("/")[1];
  const allowed = nativeLayers[layer];
  if (!allowed) return report(`${file}: csrc/${layer} is no layer of docs/map.md`);
  text.split("\n").forEach((line, index) => {
    const include = /^\s*#\s*include\s*([<"])([^">]+)[">]/.exec(line);
    const at = `${file}:${index + 1}`;
    if (include) {
      const header = include[2];
      if (layer !== "node" && nodeHeaders.test(header))
        report(`${at}: ${layer} may not include ${header} (N-API belongs to csrc/node)`);
      if (layer !== "cuda" && cudaHeaders.test(header))
        report(`${at}: ${layer} may not include ${header} (CUDA belongs to csrc/cuda)`);
      if (include[1] === '"') {
        const local = existsSync(path.join(root, path.posix.dirname(file), header));
        const target = local ? path.posix.join(path.posix.dirname(file), header) : `csrc/${header}`;
        const to = target.split("/")[1];
        if (target.startsWith("csrc/") && to in nativeLayers && to !== layer && !allowed.includes(to)) {
          report(`${at}: ${layer} may not include ${to} (${allowed.join(", ") || "nothing but itself"} only)`);
        }
      }
    }
    const type = /^\s*(?:class|struct|enum class|enum)\s+([A-Za-z_]\w*)\b(?!.*;\s*$)/.exec(line);
    const word = type && banned(type[1]);
    if (word) report(`${at}: ${type[1]} is named after "${word}"`);
  });
}

function checkName(file, report) {
  const name = path.posix.basename(file);
  const word = file.split("/").map(banned).find(Boolean);
  if (word) report(`${file}: a path is named after "${word}"`);
  if (/\.(ts|mjs|cjs)$/.test(name) && !/^[a-z0-9]+(-[a-z0-9]+)*(\.[a-z0-9]+)*\.(ts|mjs|cjs)$/.test(name)) {
    report(`${file}: TypeScript files have kebab-case names`);
  }
  if (/\.(h|cpp|cc|cu|cuh)$/.test(name) && !/^[a-z0-9]+(_[a-z0-9]+)*\.(h|cpp|cc|cu|cuh)$/.test(name)) {
    report(`${file}: C++ files have snake_case names`);
  }
}

/** Broken rules and long files below `root`. */
export function checkLayers(root) {
  const violations = [];
  const long = [];
  const report = (message) => void violations.push(message);
  for (const folder of ["lib", "csrc", "test", "bench", "examples", "scripts"]) {
    for (const file of filesBelow(root, folder)) {
      if (file.startsWith("test/fixtures/")) continue;
      checkName(file, report);
      if (folder === "lib" && file.endsWith(".ts")) checkTypeScriptFile(root, file, report);
      if (folder === "csrc" && /\.(h|cpp|cc|cu|cuh)$/.test(file)) checkNativeFile(root, file, report);
      const guide = folder === "lib" || folder === "csrc" ? sizeGuide[path.posix.extname(file)] : undefined;
      if (!guide) continue;
      const lines = readFileSync(path.join(root, file), "utf8").split("\n").length - 1;
      if (lines > guide) long.push(`${file}: ${lines} lines (guide: ${guide})`);
    }
  }
  return { violations, long };
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const root = path.resolve(process.argv[2] ?? fileURLToPath(new URL("..", import.meta.url)));
  const { violations, long } = checkLayers(root);
  if (long.length > 0) console.log(`Longer than the guide (no error):\n  ${long.join("\n  ")}`);
  if (violations.length > 0) {
    console.error(`${violations.length} broken rules of the architecture:\n  ${violations.join("\n  ")}`);
    process.exit(1);
  }
  console.log("layers: every import, include and name is in order");
}
