// What a storage format of weights is to the passes: how it is recognised, which packed layouts hold it and how kernels may compute.
// Not here: the packing itself (kernels' files in csrc), nor the choice of a layout (passes/select-kernels.ts).
import { dequantize } from "../formats/dequantize.ts";
import { type DType, dtypes } from "../formats/dtypes.ts";

export interface QuantFormat {
  /** The checkpoint dtype by which it is recognised. */
  readonly dtype: DType;
  /** Columns of a row come in whole blocks of so many. */
  readonly blockColumns: number;
  /** Layouts that hold the format without loss, the best first. */
  readonly layouts: readonly string[];
  /** Arithmetic of the fastest acceptable kernels; "f32" is always acceptable. */
  readonly fastNumerics: "f32" | "bf16" | "f16" | "int8";
  /** Reference: float32 values of whole blocks. */
  readonly dequantize: (bytes: Uint8Array) => Float32Array;
}

export function defineFormat(
  dtype: DType,
  fastNumerics: QuantFormat["fastNumerics"],
  layouts: readonly string[],
): QuantFormat {
  const { blockElements } = dtypes[dtype];
  return { dtype, blockColumns: blockElements, layouts, fastNumerics, dequantize: (bytes) => dequantize(dtype, bytes) };
}
