// The binary keeps what types/native.d.ts and types/native-text.d.ts promise, and asks of a machine no more than it should.
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript";
import { describe, expect, it } from "vitest";
import { addonPath, native } from "../../lib/native/binding.ts";

const repository = join(import.meta.dirname, "../..");

function addon() {
  try {
    return native() as unknown as Record<string, unknown>;
  } catch {
    return undefined;
  }
}
const binding = addon();
const skipped = binding ? "" : " (SKIPPED: the addon is not built)";

type Kind = "method" | "accessor" | "class" | "value";
interface Member {
  name: string;
  kind: Kind;
  /** Of a class: the interface that its instances have. */
  instance?: string;
}

/** The members of every interface of a declaration file, without those of interfaces it extends. */
function interfaces(file: string): Map<string, Member[]> {
  const path = join(repository, "types", file);
  const source = ts.createSourceFile(path, readFileSync(path, "utf8"), ts.ScriptTarget.Latest, true);
  const member = (element: ts.TypeElement): Member => {
    const name = element.name!.getText();
    if (ts.isMethodSignature(element)) return { name, kind: "method" };
    const type = (element as ts.PropertySignature).type!;
    if (ts.isConstructorTypeNode(type)) return { name, kind: "class", instance: type.type.getText() };
    return { name, kind: ts.isPropertySignature(element) && element.modifiers ? "accessor" : "value" };
  };
  return new Map(source.statements.filter(ts.isInterfaceDeclaration).map((i) => [i.name.text, i.members.map(member)]));
}

const declared = new Map([...interfaces("native.d.ts"), ...interfaces("native-text.d.ts")]);
const exported = [...declared.get("NativeBinding")!, ...declared.get("NativeTextBinding")!];
const classes = exported.filter(({ kind }) => kind === "class");

describe.skipIf(!binding)(`the addon's exports${skipped}`, () => {
  it("are the declared ones", () => {
    expect(classes.length).toBeGreaterThanOrEqual(5);
    expect(Object.keys(binding!).sort()).toEqual(exported.map(({ name }) => name).sort());
  });

  it.each(exported.map((m) => [m.name, m.kind] as const))("%s is a %s", (name, kind) => {
    expect(typeof binding![name]).toBe(kind === "accessor" ? "string" : "function");
  });

  const members = classes.flatMap((c) =>
    declared.get(c.instance!)!.map((m) => [`${c.name}.prototype.${m.name}`, c.name, m] as const),
  );
  it.each(members)("%s", (_, owner, { name, kind }) => {
    const prototype = (binding![owner] as { prototype: object }).prototype;
    const found = Object.getOwnPropertyDescriptor(prototype, name);
    expect(found).toBeDefined();
    if (kind === "method") expect(found!.value).toBeTypeOf("function");
    else expect(found!.get).toBeTypeOf("function");
  });

  it.each(classes.map((c) => [c.name, c.instance!] as const))("%s has nothing undeclared", (name, instance) => {
    const prototype = (binding![name] as { prototype: object }).prototype;
    const names = Object.getOwnPropertyNames(prototype).filter((n) => n !== "constructor");
    expect(names.sort()).toEqual(
      declared
        .get(instance)!
        .map((m) => m.name)
        .sort(),
    );
  });

  it("has the package's version", () => {
    expect(binding!.version).toBe(JSON.parse(readFileSync(join(repository, "package.json"), "utf8")).version);
  });
});

describe("the native surface", () => {
  it("has at most 18 functions for devices, weights, programs and steps", () => {
    const functions = ["NativeBinding", "NativeDevice", "NativeWeights", "NativeExecutor"]
      .flatMap((name) => declared.get(name)!)
      .filter(({ kind, name }) => kind !== "class" && name !== "version");
    expect(functions.length).toBeGreaterThan(0);
    expect(functions.length).toBeLessThanOrEqual(18);
  });
});

const readelf = (...args: string[]) => spawnSync("readelf", ["--wide", ...args, addonPath()], { encoding: "utf8" });
const reads = binding !== undefined && process.platform === "linux" && readelf("-h").status === 0;
const why = reads ? "" : " (SKIPPED: no addon, or no readelf here)";

describe.skipIf(!reads)(`what the binary asks of a machine${why}`, () => {
  interface Symbol {
    name: string;
    defined: boolean;
    weak: boolean;
  }
  // "  12: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND memcpy@GLIBC_2.14 (5)"
  const symbols = (): Symbol[] =>
    readelf("--dyn-syms")
      .stdout.split("\n")
      .map((line) => line.trim().split(/\s+/))
      .filter((words) => /^\d+:$/.test(words[0]!) && words[7] !== undefined && words[4] !== "LOCAL")
      .map((words) => ({ name: words[7]!, defined: words[6] !== "UND", weak: words[4] === "WEAK" }));

  it("exports the two symbols of Node-API and nothing else", () => {
    const names = symbols().flatMap(({ name, defined }) => (defined ? [name] : []));
    expect(names.sort()).toEqual(["napi_register_module_v1", "node_api_module_get_api_version_v1"]);
  });

  it("needs Node-API and the C library, of glibc 2.36 at most", () => {
    const needed = symbols().filter(({ defined, weak, name }) => !defined && !(weak && !name.includes("@")));
    const others = needed.filter(({ name }) => !/^(napi_|node_api_)/.test(name) && !/@GLIBC_[\d.]+$/.test(name));
    expect(others.map(({ name }) => name)).toEqual([]);
    const versions = needed.flatMap(({ name }) => /@GLIBC_(\d+)\.(\d+)/.exec(name)?.slice(1, 3).map(Number) ?? []);
    const minors = versions.filter((_, i) => i % 2 === 1);
    expect(versions.filter((_, i) => i % 2 === 0).every((major) => major === 2)).toBe(true);
    expect(Math.max(...minors)).toBeLessThanOrEqual(36);
  });

  it("links to nothing that a plain system lacks", () => {
    const libraries = [...readelf("--dynamic").stdout.matchAll(/\(NEEDED\).*\[(.+)\]/g)].map((match) => match[1]!);
    const plain = [
      "libc.so.6",
      "libm.so.6",
      "libpthread.so.0",
      "libdl.so.2",
      "ld-linux-x86-64.so.2",
      "ld-linux-aarch64.so.1",
    ];
    expect(libraries).toContain("libc.so.6");
    expect(libraries.filter((name) => !plain.includes(name))).toEqual([]);
  });
});
