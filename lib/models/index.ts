// The architectures that come with the package, and what other layers use of models. A new architecture gets its line here.
import type { Architecture } from "./architecture.ts";
import { gemma2 } from "./gemma2.ts";
import { gemma3 } from "./gemma3.ts";
import { gpt2 } from "./gpt2.ts";
import { llama } from "./llama.ts";
import { mistral } from "./mistral.ts";
import { mixtral } from "./mixtral.ts";
import { olmo2 } from "./olmo2.ts";
import { phi3 } from "./phi3.ts";
import { qwen2 } from "./qwen2.ts";
import { qwen3, qwen3Moe } from "./qwen3.ts";
import { smollm3 } from "./smollm3.ts";

export { type Architecture, architecture, findArchitecture } from "./architecture.ts";
export { contextLength, longRopeAfter } from "./limits.ts";

export const architectures: readonly Architecture[] = [
  llama,
  mistral,
  qwen2,
  qwen3,
  qwen3Moe,
  mixtral,
  gemma2,
  gemma3,
  phi3,
  gpt2,
  olmo2,
  smollm3,
];
