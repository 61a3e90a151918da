// Reads the public type declarations: which methods the classes of the API have. The matrix is checked against this list.
import { fileURLToPath } from "node:url";
import ts from "typescript";

const index = fileURLToPath(new URL("../../lib/index.ts", import.meta.url));

/** "__@asyncIterator@123" -> "[Symbol.asyncIterator]"; private names give undefined. */
function nameOf(symbol: ts.Symbol): string | undefined {
  if (symbol.name.includes("#")) return undefined;
  const wellKnown = /^__@(\w+)@\d+$/.exec(symbol.name);
  return wellKnown ? `[Symbol.${wellKnown[1]}]` : symbol.name;
}

function isPublic(declaration: ts.Declaration): boolean {
  const hidden = ts.ModifierFlags.Private | ts.ModifierFlags.Protected;
  const internal = ts.getJSDocTags(declaration).some((tag) => tag.tagName.text === "internal");
  return (ts.getCombinedModifierFlags(declaration) & hidden) === 0 && !internal;
}

/** "Model.generate", "Model.load" (static), "KVCache.constructor", "Generation.[Symbol.asyncIterator]", … */
export function publicMethods(typeNames: readonly string[]): string[] {
  const options: ts.CompilerOptions = {
    target: ts.ScriptTarget.ES2022,
    lib: ["lib.es2023.d.ts", "lib.esnext.disposable.d.ts"],
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
    allowImportingTsExtensions: true,
    noEmit: true,
    strict: true,
    skipLibCheck: true,
    types: ["node"],
  };
  const program = ts.createProgram([index], options);
  const checker = program.getTypeChecker();
  const module = checker.getSymbolAtLocation(program.getSourceFile(index)!)!;
  const exported = new Map(checker.getExportsOfModule(module).map((symbol) => [symbol.name, symbol]));
  return typeNames.flatMap((typeName) => {
    const alias = exported.get(typeName);
    if (!alias) throw new Error(`lib/index.ts does not export ${typeName}`);
    const symbol = alias.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(alias) : alias;
    const declaration = symbol.declarations![0]!;
    const isMethod = (member: ts.Symbol) =>
      checker.getTypeOfSymbolAtLocation(member, declaration).getCallSignatures().length > 0;
    const members = checker.getPropertiesOfType(checker.getDeclaredTypeOfSymbol(symbol));
    const statics =
      symbol.flags & ts.SymbolFlags.Class
        ? checker.getPropertiesOfType(checker.getTypeOfSymbolAtLocation(symbol, declaration))
        : [];
    const methods = [...members, ...statics]
      .filter((member) => (member.declarations ?? []).every(isPublic) && isMethod(member))
      .map(nameOf);
    const constructors = ts.isClassDeclaration(declaration)
      ? declaration.members.filter(ts.isConstructorDeclaration)
      : [];
    if (constructors.some(isPublic)) methods.unshift("constructor");
    return methods.filter((name) => name !== undefined).map((name) => `${typeName}.${name}`);
  });
}
