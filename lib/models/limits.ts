// What the engine must know of a model besides its graph: plain numbers, read from the normalised configuration.
import { int, readKeys, record, string } from "./config.ts";
import { originalLength, ropeKeys } from "./rope.ts";

/** Tokens of the longest sequence that the model can take; Infinity where the configuration sets no limit. */
export function contextLength(config: object): number {
  const c = readKeys({ max_position_embeddings: int.optional, n_positions: int.optional }, config);
  return c.max_position_embeddings ?? c.n_positions ?? Number.POSITIVE_INFINITY;
}

/**
 * With longrope: a sequence whose prompt has more tokens than this rotates by row 1 of the frequencies (input `rope_row`) from its
 * first token to its last, others by row 0. Infinity for all other models.
 */
export function longRopeAfter(config: object): number {
  const { rope_scaling: scaling } = readKeys({ rope_scaling: record({ rope_type: string.optional }).optional }, config);
  return scaling?.rope_type === "longrope" ? originalLength(readKeys(ropeKeys, config)) : Number.POSITIVE_INFINITY;
}
