// The values of a model of random weights: each a function of seed, tensor name and place, the same on every machine. The loader
// makes them natively (csrc/core/random_weights.cpp); this is the definition, and what the reference interpreter reads.

/** Types that random weights come in. */
export type RandomDType = "f32" | "f16" | "bf16";

/** Bits of the mantissa, exponent of the smallest normal number. */
const precisions = { f32: [23, -126], f16: [10, -14], bf16: [7, -126] } as const;

/** A number rounded to a type: nearest, of two equally near the even one. */
function roundTo(dtype: RandomDType, value: number): number {
  const [mantissa, least] = precisions[dtype];
  let exponent = least;
  while (Math.abs(value) >= 2 ** (exponent + 1)) exponent++;
  const unit = 2 ** (exponent - mantissa);
  const steps = value / unit;
  const below = Math.floor(steps);
  const isUp = steps - below > 0.5 || (steps - below === 0.5 && below % 2 !== 0);
  return (below + Number(isUp)) * unit;
}

/**
 * The tensor's elements, row by row. With all arithmetic of integers modulo 2^32:
 * key = fnv1a32(UTF-8 of the name) ^ seed * 0x9e3779b9; x = murmur3's finalizer of (i * 0x9e3779b1 + key); u = (x >>> 8) / 2^24.
 * Element i is (2u - 1) * sqrt(3 / last dim) for two dims and more, (2u - 1) * 0.02 for vectors whose name ends in "bias", else
 * 1 + (2u - 1) * 0.1; computed in float64 and rounded once, to nearest even.
 */
export function randomValues(seed: number, name: string, shape: readonly number[], dtype: RandomDType): Float32Array {
  let key = 0x811c9dc5;
  for (const byte of Buffer.from(name)) key = Math.imul(key ^ byte, 0x01000193);
  key ^= Math.imul(seed, 0x9e3779b9);
  const isMatrix = shape.length > 1;
  const isBias = !isMatrix && name.endsWith("bias");
  const range = isMatrix ? Math.sqrt(3 / shape.at(-1)!) : isBias ? 0.02 : 0.1;
  const centre = isMatrix || isBias ? 0 : 1;
  return new Float32Array(shape.reduce((a, b) => a * b, 1)).map((_, i) => {
    let x = Math.imul(i, 0x9e3779b1) + key;
    x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
    x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
    x ^= x >>> 16;
    return roundTo(dtype, centre + (2 * ((x >>> 8) / 2 ** 24) - 1) * range);
  });
}
