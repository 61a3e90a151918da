// What `inferx inspect` shows of a model beyond the public API: plan texts and differences from the reference.
import type { StepDifference } from "../engine/plan-difference.ts";
import type { Model } from "./model.ts";

export type { StepDifference };

/** Steps of a prompt's forward, each with its error against the reference. Numerics and cache are those the model was loaded with. */
export function inspectDifferences(model: Model, prompt: string | readonly number[]): AsyncIterable<StepDifference> {
  return model.prepared.differences(prompt);
}
