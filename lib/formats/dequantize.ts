// Reference dequantization: what the stored bytes of a row mean, one clear scalar loop per format.
// The oracle of the reference evaluation and of the tests; kernels compute from packed layouts of their own.
// Block layouts follow ggml's `ggml-common.h`; "lo" and "hi" are the halves of a byte.
import { InferxError } from "../base/errors.ts";
import { type DType, dtypes } from "./dtypes.ts";

/** Writes the elements of the block at byte `p` to `out` from index `o`. */
type DecodeBlock = (view: DataView, p: number, out: Float32Array, o: number) => void;

const scratch = new DataView(new ArrayBuffer(4));

/** The float32 with the given bits of a bfloat16. */
export function bf16ToFloat(bits: number): number {
  scratch.setUint32(0, bits << 16);
  return scratch.getFloat32(0);
}

/** The number with the given bits of an IEEE half. */
export function f16ToFloat(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15));
}

const half = (view: DataView, p: number): number => f16ToFloat(view.getUint16(p, true));
const lo = (byte: number): number => byte & 15;
const hi = (byte: number): number => byte >> 4;

/** 32 elements in 16 bytes: the low halves are the first 16 elements. */
function halves(view: DataView, p: number, element: (nibble: number, index: number) => void): void {
  for (let j = 0; j < 16; j++) {
    const byte = view.getUint8(p + j);
    element(lo(byte), j);
    element(hi(byte), j + 16);
  }
}

/** Scale and minimum (6 bits each) number `j` of 8, packed into 12 bytes: q4_k and q5_k. */
function scaleAndMin(view: DataView, p: number, j: number): [number, number] {
  const byte = (i: number) => view.getUint8(p + i);
  if (j < 4) return [byte(j) & 63, byte(j + 4) & 63];
  return [lo(byte(j + 4)) | ((byte(j - 4) >> 6) << 4), hi(byte(j + 4)) | ((byte(j) >> 6) << 4)];
}

/** Levels of the non-linear 4-bit types (`kvalues_iq4nl`). */
const levels4 = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113] as const;

const decoders: Partial<Record<DType, DecodeBlock>> = {
  f32: (v, p, out, o) => {
    out[o] = v.getFloat32(p, true);
  },
  f16: (v, p, out, o) => {
    out[o] = half(v, p);
  },
  bf16: (v, p, out, o) => {
    out[o] = bf16ToFloat(v.getUint16(p, true));
  },
  // f16 d; i8 q[32]
  q8_0: (v, p, out, o) => {
    const d = half(v, p);
    for (let j = 0; j < 32; j++) out[o + j] = d * v.getInt8(p + 2 + j);
  },
  // f16 d; nibbles
  q4_0: (v, p, out, o) => {
    const d = half(v, p);
    halves(v, p + 2, (q, j) => {
      out[o + j] = d * (q - 8);
    });
  },
  // f16 d; f16 m; nibbles
  q4_1: (v, p, out, o) => {
    const [d, m] = [half(v, p), half(v, p + 2)];
    halves(v, p + 4, (q, j) => {
      out[o + j] = d * q + m;
    });
  },
  // f16 d; u32 fifth bits; nibbles
  q5_0: (v, p, out, o) => {
    const [d, high] = [half(v, p), v.getUint32(p + 2, true)];
    halves(v, p + 6, (q, j) => {
      out[o + j] = d * ((q | (((high >>> j) & 1) << 4)) - 16);
    });
  },
  // f16 d; f16 m; u32 fifth bits; nibbles
  q5_1: (v, p, out, o) => {
    const [d, m, high] = [half(v, p), half(v, p + 2), v.getUint32(p + 4, true)];
    halves(v, p + 8, (q, j) => {
      out[o + j] = d * (q | (((high >>> j) & 1) << 4)) + m;
    });
  },
  // u8 (scale lo, min hi)[16]; 2 bits q[256]; f16 d; f16 dmin
  q2_k: (v, p, out, o) => {
    const [d, dmin] = [half(v, p + 80), half(v, p + 82)];
    for (let i = 0; i < 256; i++) {
      const scale = v.getUint8(p + (i >> 4));
      const q = (v.getUint8(p + 16 + ((i >> 7) << 5) + (i & 31)) >> (((i >> 5) & 3) * 2)) & 3;
      out[o + i] = d * lo(scale) * q - dmin * hi(scale);
    }
  },
  // third bits [256]; 2 bits q[256]; 6 bits scale[16]; f16 d
  q3_k: (v, p, out, o) => {
    const d = half(v, p + 108);
    for (let i = 0; i < 256; i++) {
      const s = i >> 4;
      const low = v.getUint8(p + 96 + (s & 7)) >> (s < 8 ? 0 : 4);
      const high = v.getUint8(p + 104 + (s & 3)) >> ((s >> 2) * 2);
      const scale = (lo(low) | ((high & 3) << 4)) - 32;
      const q = (v.getUint8(p + 32 + ((i >> 7) << 5) + (i & 31)) >> (((i >> 5) & 3) * 2)) & 3;
      const third = (v.getUint8(p + (i & 31)) >> (i >> 5)) & 1;
      out[o + i] = d * scale * (q - (third ? 0 : 4));
    }
  },
  // f16 d; f16 dmin; 6 bits (scale, min)[8]; nibbles, 64 elements in 32 bytes
  q4_k: (v, p, out, o) => {
    const [d, dmin] = [half(v, p), half(v, p + 2)];
    for (let s = 0; s < 8; s++) {
      const [scale, min] = scaleAndMin(v, p + 4, s);
      for (let j = 0; j < 32; j++) {
        const byte = v.getUint8(p + 16 + (s >> 1) * 32 + j);
        out[o + s * 32 + j] = d * scale * (s & 1 ? hi(byte) : lo(byte)) - dmin * min;
      }
    }
  },
  // as q4_k, with 32 bytes of fifth bits before the nibbles
  q5_k: (v, p, out, o) => {
    const [d, dmin] = [half(v, p), half(v, p + 2)];
    for (let s = 0; s < 8; s++) {
      const [scale, min] = scaleAndMin(v, p + 4, s);
      for (let j = 0; j < 32; j++) {
        const byte = v.getUint8(p + 48 + (s >> 1) * 32 + j);
        const fifth = (v.getUint8(p + 16 + j) >> s) & 1;
        out[o + s * 32 + j] = d * scale * ((s & 1 ? hi(byte) : lo(byte)) | (fifth << 4)) - dmin * min;
      }
    }
  },
  // nibbles [256]; 2 high bits [256]; i8 scale[16]; f16 d
  q6_k: (v, p, out, o) => {
    const d = half(v, p + 208);
    for (let i = 0; i < 256; i++) {
      const [part, quarter, j] = [i >> 7, (i >> 5) & 3, i & 31];
      const byte = v.getUint8(p + part * 64 + (quarter & 1) * 32 + j);
      const high = (v.getUint8(p + 128 + part * 32 + j) >> (quarter * 2)) & 3;
      const q = ((quarter < 2 ? lo(byte) : hi(byte)) | (high << 4)) - 32;
      out[o + i] = d * v.getInt8(p + 192 + (i >> 4)) * q;
    }
  },
  // f16 d; nibbles
  iq4_nl: (v, p, out, o) => {
    const d = half(v, p);
    halves(v, p + 2, (q, j) => {
      out[o + j] = d * levels4[q]!;
    });
  },
  // f16 d; u16 2 high bits of scale[8]; 4 low bits of scale[8]; nibbles
  iq4_xs: (v, p, out, o) => {
    const [d, high] = [half(v, p), v.getUint16(p + 2, true)];
    for (let s = 0; s < 8; s++) {
      const low = v.getUint8(p + 4 + (s >> 1)) >> ((s & 1) * 4);
      const scale = d * ((lo(low) | (((high >> (s * 2)) & 3) << 4)) - 32);
      halves(v, p + 8 + s * 16, (q, j) => {
        out[o + s * 32 + j] = scale * levels4[q]!;
      });
    }
  },
};

export function canDequantize(dtype: DType): boolean {
  return dtype in decoders;
}

/**
 * The values of whole blocks, in order: `bytes.byteLength / blockBytes * blockElements` float32.
 * Errors: IX_UNSUPPORTED_FORMAT for types without a decoder here, IX_INVALID_ARGUMENT for a part of a block.
 */
export function dequantize(dtype: DType, bytes: Uint8Array): Float32Array {
  const decode = decoders[dtype];
  if (!decode) throw new InferxError("IX_UNSUPPORTED_FORMAT", `cannot dequantize ${dtype}`, { dtype });
  const { blockElements, blockBytes } = dtypes[dtype];
  const numBlocks = bytes.byteLength / blockBytes;
  if (!Number.isInteger(numBlocks)) {
    throw new InferxError(
      "IX_INVALID_ARGUMENT",
      `${bytes.byteLength} bytes are not whole ${dtype} blocks of ${blockBytes}`,
    );
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const out = new Float32Array(numBlocks * blockElements);
  for (let b = 0; b < numBlocks; b++) decode(view, b * blockBytes, out, b * blockElements);
  return out;
}
