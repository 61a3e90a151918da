// A model on disk: its checkpoint, opened, and the plain numbers that the engine needs of its configuration.
import { checkUnchanged } from "../formats/bounded-reader.ts";
import { type Checkpoint, openCheckpoint } from "../formats/checkpoint.ts";
import { contextLength, longRopeAfter } from "../models/index.ts";

export type { Checkpoint } from "../formats/checkpoint.ts";
export type { Architecture } from "../models/index.ts";

export interface ModelSource {
  checkpoint: Checkpoint;
  /** Tokens of the longest sequence; Infinity where the configuration sets no limit. */
  contextLength: number;
  /** Sequences with longer prompts use row 1 of the rope table; Infinity for most models. */
  longRopeAfter: number;
}

/** @throws IX_FILE_NOT_FOUND, IX_FILE_READ, IX_MODEL_FORMAT, IX_MODEL_CONFIG, IX_UNSUPPORTED_ARCHITECTURE */
export function openModelSource(path: string): ModelSource {
  const checkpoint = openCheckpoint(path);
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
