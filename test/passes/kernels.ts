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

/** `allKernels`, and those that a device with bf16 activations has besides: every op of a decoder but attention and embed. */
export const narrowKernels: readonly KernelInfo[] = [
  ...allKernels,
  ...[
    ...["f32", "bf16"].flatMap((x) => [
      `rms_norm(x: ${x}[T,D], w?: f32[D], groups: i32, eps: f32) -> bf16[T,D]`,
      `add_rms_norm(a: f32[T,D], b: ${x}[T,D], w: f32[D], eps: f32) -> f32[T,D], bf16[T,D]`,
      `gated_act(x: ${x}[T,N], groups: i32, kind: i32) -> bf16[T,M]`,
    ]),
    "add(a: f32[T,D], b: bf16[T,D]) -> f32[T,D]",
    "qk_norm_rope_kv_write(cache: kv_f32[B,L,K,D], q: bf16[T,N], k: bf16[T,M], v: bf16[T,M], table: f32[T,R], slots: i32[T], qw?: f32[D], kw?: f32[D], heads: i32, interleaved: i32, eps: f32) -> f32[T,N], cache",
  ].map((signature) => ({ signature, tags: "", source: "csrc/test/narrow.cpp" })),
  ...["f32", "bf16"].flatMap((x) =>
    ["f32", "bf16"]
      .filter((y) => x !== y || x === "bf16")
      .map((y) => ({
        signature: `linear(x: ${x}[T,K], w: p32_bf16[N,K], bias?: f32[N]) -> ${y}[T,N]`,
        tags: "numerics=bf16",
        source: "csrc/test/narrow.cpp",
      })),
  ),
];
