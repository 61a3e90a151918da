// A model on disk or made up: its checkpoint, opened, and the plain numbers that the engine needs of its configuration.
import { checkUnchanged } from "../formats/bounded-reader.ts";
import { type Checkpoint, openCheckpoint } from "../formats/checkpoint.ts";
import { type Architecture, contextLength, longRopeAfter } from "../models/index.ts";
import { type RandomModel, randomCheckpoint } from "./random-source.ts";

export type { Checkpoint } from "../formats/checkpoint.ts";
export type { Architecture } from "../models/index.ts";
export type { RandomModel } from "./random-source.ts";

export interface ModelSource {
  checkpoint: Checkpoint;
  /** Tokens of the longest sequence; Infinity where the configuration sets no limit. */
  contextLength: number;
  /** Sequences with longer prompts use row 1 of the rope table; Infinity for most models. */
  longRopeAfter: number;
}

/**
 * Opens the model at a path, or makes one of random weights.
 * @throws IX_FILE_NOT_FOUND, IX_FILE_READ, IX_MODEL_FORMAT, IX_MODEL_CONFIG, IX_UNSUPPORTED_ARCHITECTURE; IX_INVALID_ARGUMENT,
 * IX_OUT_OF_MEMORY for what a random model cannot be
 */
export function openModelSource(from: string | RandomModel, architectures: readonly Architecture[] = []): ModelSource {
  const checkpoint = typeof from === "string" ? openCheckpoint(from) : randomCheckpoint(from, architectures);
  return {
    checkpoint,
    contextLength: contextLength(checkpoint.config),
    longRopeAfter: longRopeAfter(checkpoint.config),
  };
}

/** @throws IX_FILE_CHANGED when a file is no longer the one whose header was read */
export function checkSourceUnchanged({ files }: Checkpoint): void {
  for (const file of files) checkUnchanged(file);
}
