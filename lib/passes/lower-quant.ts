// Decides how each weight is stored: matrices in the format of their checkpoint where it can be kept, all else in float32.
// After this pass a weight's dtype is its storage format, and equal weights are one value.
import { InferxError } from "../base/errors.ts";
import { type Graph, type Value, type WeightValue, weightColumns } from "../ir/graph.ts";
import { links, operandsOf, substitute } from "../ir/links.ts";
import { opOf } from "../ir/ops/index.ts";
import { weightKey } from "../ir/weights.ts";
import { detectFormat } from "../quant/index.ts";

/** @throws IX_UNSUPPORTED_FORMAT naming the tensor and its dtype. */
export function lowerQuant(graph: Graph): Graph {
  const { uses } = links(graph);
  const isMatrix = (weight: WeightValue) =>
    uses(weight).some((node) =>
      node.operands.some((value, i) => value === weight && opOf(node.op).signature.operands[i]!.type === "W"),
    );
  const stored = new Map<string, WeightValue>();
  const replaced = new Map<Value, Value>();
  for (const value of operandsOf(graph)) {
    if (value.kind !== "weight") continue;
    const dtype = storage(value, isMatrix(value));
    const key = `${dtype} ${weightKey(value)}`;
    const weight = stored.get(key) ?? { ...value, dtype };
    stored.set(key, weight);
    replaced.set(value, weight);
  }
  return substitute(graph, (value) => replaced.get(value) ?? value);
}

function storage(weight: WeightValue, matrix: boolean): string {
  const format = detectFormat(weight.dtype);
  if (!format) {
    throw new InferxError(
      "IX_UNSUPPORTED_FORMAT",
      `${weight.name} is stored as ${weight.dtype}, which no format covers`,
      { tensor: weight.name },
    );
  }
  const changed = weight.sources.some((source) => source.addOne || source.scale !== 1);
  const transposed = weight.sources.some((source) => source.transposed);
  const keeps = matrix && !changed && !(transposed && format.blockColumns > 1);
  if (keeps && weightColumns(weight.shape) % format.blockColumns !== 0) {
    throw new InferxError(
      "IX_MODEL_FORMAT",
      `${weight.name}: rows of ${weightColumns(weight.shape)} are not whole blocks of ${weight.dtype}`,
    );
  }
  return keeps ? weight.dtype : "f32";
}
