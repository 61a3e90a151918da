// Rotary position frequencies: the inverse frequencies and the factor on cos and sin for every published scaling.
// Computed in float32 step by step, as the models were trained. Not here: the rotation itself (the ops rope_table and rope).
import { InferxError } from "../base/errors.ts";
import { bool, float, int, intWithin, list, record, refuseConfig, string, type Values } from "./config.ts";

const scalingKeys = {
  rope_type: string.optional,
  factor: float.optional,
  attention_factor: float.optional,
  original_max_position_embeddings: intWithin(2).optional,
  low_freq_factor: float.optional,
  high_freq_factor: float.optional,
  beta_fast: float.default(32),
  beta_slow: float.default(1),
  mscale: float.optional,
  mscale_all_dim: float.optional,
  truncate: bool.default(true),
  short_factor: list(float).optional,
  long_factor: list(float).optional,
};

/** The configuration keys from which `ropeFrequencies` works; an architecture spreads them into its own. */
export const ropeKeys = {
  rope_theta: float.default(10000),
  rope_scaling: record(scalingKeys).optional,
  partial_rotary_factor: float.default(1),
  max_position_embeddings: int,
  original_max_position_embeddings: intWithin(2).optional,
};

export type RopeConfig = Values<typeof ropeKeys>;
type Scaling = Values<typeof scalingKeys>;

/** Frequencies of the H pairs of columns that rotate: one row, or with longrope two (for short sequences and for long ones). */
export interface RopeFrequencies {
  /** Each f32 [H]: radians per position. */
  invFreq: Float32Array[];
  /** One per row: multiplies cos and sin. */
  factor: number[];
}

const f32 = Math.fround;

/** theta^(2i/dim) for the dim/2 pairs. */
function wavelengths(theta: number, dim: number): Float32Array {
  return Float32Array.from({ length: dim / 2 }, (_, i) => f32(theta) ** f32((2 * i) / dim));
}

function required(scaling: Scaling, key: "factor" | "low_freq_factor" | "high_freq_factor"): number {
  return (
    scaling[key] ??
    refuseConfig(`rope_scaling.${key}`, undefined, `a number above 0 for rope_type "${scaling.rope_type}"`)
  );
}

/** Tokens of the longest sequences before the context was extended. */
export function originalLength(c: RopeConfig): number {
  const length = c.rope_scaling?.original_max_position_embeddings ?? c.original_max_position_embeddings;
  return length ?? c.max_position_embeddings;
}

/** Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, those between blended. */
function llama3(base: Float32Array, c: RopeConfig, scaling: Scaling): Float32Array {
  const factor = f32(required(scaling, "factor"));
  const low = required(scaling, "low_freq_factor");
  const high = required(scaling, "high_freq_factor");
  if (!(high > low)) refuseConfig("rope_scaling.high_freq_factor", high, `above low_freq_factor (${low})`);
  const length = originalLength(c);
  return base.map((freq) => {
    const wavelength = f32(f32(2 * Math.PI) / freq);
    if (wavelength < f32(length / high)) return freq;
    if (wavelength > f32(length / low)) return freq / factor;
    const smooth = f32(f32(f32(f32(length) / wavelength) - f32(low)) / f32(high - low));
    return f32(f32(f32(1 - smooth) * freq) / factor) + f32(smooth * freq);
  });
}

/** YaRN (Peng et al. 2023, arXiv 2309.00071): a ramp over the pairs from kept to stretched frequencies. */
function yarn(powers: Float32Array, c: RopeConfig, scaling: Scaling): Float32Array {
  const factor = f32(required(scaling, "factor"));
  const dim = powers.length * 2;
  const pairOf = (rotations: number) =>
    (dim * Math.log(originalLength(c) / (rotations * 2 * Math.PI))) / (2 * Math.log(c.rope_theta));
  const [first, last] = [pairOf(scaling.beta_fast), pairOf(scaling.beta_slow)];
  const low = Math.max(scaling.truncate ? Math.floor(first) : first, 0);
  const high = Math.min(scaling.truncate ? Math.ceil(last) : last, dim - 1);
  const width = f32(high === low ? 0.001 : high - low);
  return powers.map((power, i) => {
    const kept = f32(1 - Math.min(Math.max(f32(f32(i - f32(low)) / width), 0), 1));
    return f32(f32(1 / f32(factor * power)) * f32(1 - kept)) + f32(f32(1 / power) * kept);
  });
}

function yarnFactor(scaling: Scaling): number {
  const { mscale, mscale_all_dim } = scaling;
  const factor = required(scaling, "factor");
  const magnitude = (scale: number) => (factor <= 1 ? 1 : 0.1 * scale * Math.log(factor) + 1);
  return mscale && mscale_all_dim ? magnitude(mscale) / magnitude(mscale_all_dim) : magnitude(1);
}

/** LongRoPE (Ding et al. 2024, arXiv 2402.13753): one divisor per pair, another list beyond the original length. */
function longrope(powers: Float32Array, c: RopeConfig, scaling: Scaling): RopeFrequencies {
  const original = originalLength(c);
  const ratio = scaling.factor ?? c.max_position_embeddings / original;
  const magnitude = ratio <= 1 ? 1 : Math.sqrt(1 + Math.log(ratio) / Math.log(original));
  const rows = (["short_factor", "long_factor"] as const).map((key) => {
    const divisors = scaling[key];
    if (divisors?.length !== powers.length) {
      refuseConfig(
        `rope_scaling.${key}`,
        divisors?.length,
        `a list of ${powers.length} numbers, one for each rotated pair`,
      );
    }
    return powers.map((power, i) => 1 / f32(f32(divisors[i]!) * power));
  });
  const factor = scaling.attention_factor ?? magnitude;
  return { invFreq: rows, factor: [factor, factor] };
}

/**
 * The frequencies of a model whose heads are `headDim` wide, as the configuration asks.
 * Errors: IX_MODEL_CONFIG for missing or contradictory keys, IX_UNSUPPORTED_ARCHITECTURE for an unknown rope_type.
 */
export function ropeFrequencies(c: RopeConfig, headDim: number): RopeFrequencies {
  if (!(c.rope_theta > 1)) refuseConfig("rope_theta", c.rope_theta, "above 1");
  const dim = Math.trunc(headDim * c.partial_rotary_factor);
  if (dim < 2 || dim % 2 !== 0 || dim > headDim) {
    refuseConfig(
      "partial_rotary_factor",
      c.partial_rotary_factor,
      `such that an even part of the ${headDim} columns of a head rotates`,
    );
  }
  const scaling = c.rope_scaling ?? record(scalingKeys).read({}, "rope_scaling");
  const powers = wavelengths(c.rope_theta, dim);
  const base = powers.map((power) => 1 / power);
  const single = (invFreq: Float32Array, factor = 1): RopeFrequencies => ({ invFreq: [invFreq], factor: [factor] });
  switch (scaling.rope_type ?? "default") {
    case "default":
    // Dynamic scaling changes the frequencies beyond max_position_embeddings only, and no context is longer than that.
    case "dynamic":
      return single(base);
    case "linear":
      return single(base.map((freq) => freq / f32(required(scaling, "factor"))));
    case "llama3":
      return single(llama3(base, c, scaling));
    case "yarn":
      return single(yarn(powers, c, scaling), scaling.attention_factor ?? yarnFactor(scaling));
    case "longrope":
      return longrope(powers, c, scaling);
    default:
      throw new InferxError("IX_UNSUPPORTED_ARCHITECTURE", `unknown rope_type "${scaling.rope_type}"`, {
        rope_type: scaling.rope_type,
      });
  }
}
