// The plan file's sections and codes (docs/plan.md, "The plan file"), shared by the writer (emit.ts) and the reader (decode.ts).

export const planVersion = 1;
export const planMagic = 0x4c505849; // "IXPL"
export const headerBytes = 72;

/** Name and record width of the sections, in order. */
export const sections = [
  ["strings", 1],
  ["kernels", 24],
  ["weights", 48],
  ["sources", 40],
  ["constants", 40],
  ["floats", 4],
  ["inputs", 48],
  ["states", 40],
  ["outputs", 16],
  ["groups", 48],
  ["programs", 16],
  ["steps", 32],
  ["operands", 48],
  ["scalars", 8],
] as const;
export type SectionName = (typeof sections)[number][0];

/** Codes are places in these lists. */
export const typeCodes = ["f32", "i32", "u32", "layout", "cache", "bf16"] as const;
export const spaceCodes = ["omitted", "arena", "input", "state", "weight", "constant", "cache"] as const;
export const groupKinds = ["full", "window"] as const;
/** dims[0] = -1 - the place. */
export const symbols = ["T", "R", "S"] as const;
export const sourceFlags = { transposed: 1, addOne: 2 } as const;
export const maxRank = 4;

export type PlanType = (typeof typeCodes)[number];

/** Bytes of an element of what lies in the arena. */
export function elementBytes(type: string): number {
  return type === "bf16" ? 2 : 4;
}
export type PlanSpace = (typeof spaceCodes)[number];
export type PlanDim = number | (typeof symbols)[number];

/** FNV-1a, 64 bits, as [low, high] words: 16-bit limbs, because products of doubles are exact to 53 bits only. */
export function fnv1a64(bytes: Uint8Array): [number, number] {
  let [a, b, c, d] = [0x2325, 0x8422, 0x9ce4, 0xcbf2]; // lowest limb first
  for (const byte of bytes) {
    a ^= byte;
    // times 2^40 + 0x1b3
    const [a1, b1, c1, d1] = [
      a * 0x1b3,
      b * 0x1b3,
      c * 0x1b3 + ((a << 8) & 0xffff),
      d * 0x1b3 + ((b << 8) & 0xffff) + (a >>> 8),
    ];
    a = a1 & 0xffff;
    const b2 = b1 + (a1 >>> 16);
    b = b2 & 0xffff;
    const c2 = c1 + (b2 >>> 16);
    c = c2 & 0xffff;
    d = (d1 + (c2 >>> 16)) & 0xffff;
  }
  return [(a | (b << 16)) >>> 0, (c | (d << 16)) >>> 0];
}
