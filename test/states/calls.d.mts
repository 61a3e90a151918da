import type { Generation, Model, ModelOptions } from "../../lib/index.ts";

export interface Context {
  model: Model;
  generation?: Generation;
  signal?: AbortSignal;
  options?: ModelOptions;
}
export const inferx: typeof import("../../lib/index.ts");
export function needsGeneration(name: string): boolean;
export function startGeneration(model: Model, signal?: AbortSignal): Generation;
export const calls: Record<string, (context: Context) => Promise<unknown>>;
