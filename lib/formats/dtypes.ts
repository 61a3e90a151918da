// The element types of checkpoints: how many elements a block has and how many bytes it takes.
// Not here: how blocks are computed with (kernels), nor what the numbers mean (dequantize.ts).

interface DTypeInfo {
  /** Elements per block along the innermost dimension. */
  blockElements: number;
  blockBytes: number;
  /** Type id in GGUF files, absent where GGUF lacks the type. */
  ggmlType?: number;
  /** Name in safetensors headers, absent where safetensors lacks the type. */
  safetensors?: string;
}

/** Block types follow ggml's `ggml-common.h`, plain types the safetensors format page. */
export const dtypes = {
  f32: { blockElements: 1, blockBytes: 4, ggmlType: 0, safetensors: "F32" },
  f16: { blockElements: 1, blockBytes: 2, ggmlType: 1, safetensors: "F16" },
  bf16: { blockElements: 1, blockBytes: 2, ggmlType: 30, safetensors: "BF16" },
  f64: { blockElements: 1, blockBytes: 8, ggmlType: 28, safetensors: "F64" },
  i8: { blockElements: 1, blockBytes: 1, ggmlType: 24, safetensors: "I8" },
  i16: { blockElements: 1, blockBytes: 2, ggmlType: 25, safetensors: "I16" },
  i32: { blockElements: 1, blockBytes: 4, ggmlType: 26, safetensors: "I32" },
  i64: { blockElements: 1, blockBytes: 8, ggmlType: 27, safetensors: "I64" },
  u8: { blockElements: 1, blockBytes: 1, safetensors: "U8" },
  u16: { blockElements: 1, blockBytes: 2, safetensors: "U16" },
  u32: { blockElements: 1, blockBytes: 4, safetensors: "U32" },
  u64: { blockElements: 1, blockBytes: 8, safetensors: "U64" },
  bool: { blockElements: 1, blockBytes: 1, safetensors: "BOOL" },
  c64: { blockElements: 1, blockBytes: 8, safetensors: "C64" },
  f8_e4m3: { blockElements: 1, blockBytes: 1, safetensors: "F8_E4M3" },
  f8_e5m2: { blockElements: 1, blockBytes: 1, safetensors: "F8_E5M2" },
  f8_e8m0: { blockElements: 1, blockBytes: 1, safetensors: "F8_E8M0" },
  f4: { blockElements: 2, blockBytes: 1, safetensors: "F4" },
  q4_0: { blockElements: 32, blockBytes: 18, ggmlType: 2 },
  q4_1: { blockElements: 32, blockBytes: 20, ggmlType: 3 },
  q5_0: { blockElements: 32, blockBytes: 22, ggmlType: 6 },
  q5_1: { blockElements: 32, blockBytes: 24, ggmlType: 7 },
  q8_0: { blockElements: 32, blockBytes: 34, ggmlType: 8 },
  q8_1: { blockElements: 32, blockBytes: 40, ggmlType: 9 },
  q2_k: { blockElements: 256, blockBytes: 84, ggmlType: 10 },
  q3_k: { blockElements: 256, blockBytes: 110, ggmlType: 11 },
  q4_k: { blockElements: 256, blockBytes: 144, ggmlType: 12 },
  q5_k: { blockElements: 256, blockBytes: 176, ggmlType: 13 },
  q6_k: { blockElements: 256, blockBytes: 210, ggmlType: 14 },
  q8_k: { blockElements: 256, blockBytes: 292, ggmlType: 15 },
  iq2_xxs: { blockElements: 256, blockBytes: 66, ggmlType: 16 },
  iq2_xs: { blockElements: 256, blockBytes: 74, ggmlType: 17 },
  iq3_xxs: { blockElements: 256, blockBytes: 98, ggmlType: 18 },
  iq1_s: { blockElements: 256, blockBytes: 50, ggmlType: 19 },
  iq4_nl: { blockElements: 32, blockBytes: 18, ggmlType: 20 },
  iq3_s: { blockElements: 256, blockBytes: 110, ggmlType: 21 },
  iq2_s: { blockElements: 256, blockBytes: 82, ggmlType: 22 },
  iq4_xs: { blockElements: 256, blockBytes: 136, ggmlType: 23 },
  iq1_m: { blockElements: 256, blockBytes: 56, ggmlType: 29 },
  tq1_0: { blockElements: 256, blockBytes: 54, ggmlType: 34 },
  tq2_0: { blockElements: 256, blockBytes: 66, ggmlType: 35 },
  mxfp4: { blockElements: 32, blockBytes: 17, ggmlType: 39 },
  nvfp4: { blockElements: 64, blockBytes: 36, ggmlType: 40 },
  q1_0: { blockElements: 128, blockBytes: 18, ggmlType: 41 },
} as const satisfies Record<string, DTypeInfo>;

export type DType = keyof typeof dtypes;

const entries = Object.entries(dtypes) as [DType, DTypeInfo][];

/** GGUF's type id -> name. */
export const dtypeOfGgml: ReadonlyMap<number, DType> = new Map(
  entries.flatMap(([name, info]) => (info.ggmlType === undefined ? [] : [[info.ggmlType, name]])),
);

/** Name in a safetensors header -> name. */
export const dtypeOfSafetensors: ReadonlyMap<string, DType> = new Map(
  entries.flatMap(([name, info]) => (info.safetensors === undefined ? [] : [[info.safetensors, name]])),
);

/** Bytes of `numElements` elements whose rows are whole blocks. */
export function dtypeBytes(dtype: DType, numElements: number): number {
  const { blockElements, blockBytes } = dtypes[dtype];
  return (numElements / blockElements) * blockBytes;
}
