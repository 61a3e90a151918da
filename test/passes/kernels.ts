// A kernel list as a device with a kernel for everything would report it: made from the ops themselves.
import { ops } from "../../lib/ir/ops/index.ts";
import type { Signature } from "../../lib/ir/signature.ts";
import { type KernelInfo, viewOps } from "../../lib/passes/select-kernels.ts";
import { quantFormats } from "../../lib/quant/index.ts";

function text({ op, operands, scalars, results }: Signature, weight: string, cache: string): string {
  const type = (name: string) => (name === "W" ? weight : name === "kv_C" ? cache : name);
  const dims = (list: readonly string[]) => (list.length > 0 ? list : ["B", "L", "K", "D"]).join(",");
  const parameters = [
    ...operands.map((o) => `${o.name}${o.optional ? "?" : ""}: ${type(o.type)}[${dims(o.dims)}]`),
    ...scalars.map((s) => `${s.name}: ${s.type}`),
  ];
  return `${op}(${parameters.join(", ")}) -> ${results.map((r) => r.inPlaceOf ?? `${type(r.type)}[${dims(r.dims)}]`).join(", ")}`;
}

/** Exact kernels for every op, layout and cache type, and the fast ones of the formats. */
export const allKernels: readonly KernelInfo[] = [...ops.values()].flatMap(({ signature }): KernelInfo[] => {
  const { op, operands } = signature;
  if (viewOps.has(op)) return [];
  const source = `csrc/test/${op}.cpp`;
  if (operands.some(({ type }) => type === "kv_C")) {
    return ["kv_f32", "kv_bf16"].map((cache) => ({ signature: text(signature, "", cache), tags: "", source }));
  }
  if (!operands.some(({ type }) => type === "W")) return [{ signature: text(signature, "", ""), tags: "", source }];
  return quantFormats.flatMap(({ layouts, fastNumerics }) => {
    const numerics = op === "embed" ? ["f32"] : [...new Set(["f32", fastNumerics])];
    return numerics.map((n) => ({ signature: text(signature, layouts[0]!, ""), tags: `numerics=${n}`, source }));
  });
});
