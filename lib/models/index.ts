// The architectures that come with the package, and what other layers use of models. A new architecture gets its line here.
import { InferxError } from "../base/errors.ts";
import type { Architecture } from "./architecture.ts";
import { cohere, cohere2 } from "./cohere.ts";
import { exaone4 } from "./exaone4.ts";
import { falcon } from "./falcon.ts";
import { gemma } from "./gemma.ts";
import { gemma2 } from "./gemma2.ts";
import { gemma3 } from "./gemma3.ts";
import { glm4 } from "./glm4.ts";
import { gptNeox } from "./gpt-neox.ts";
import { gpt2 } from "./gpt2.ts";
import { granite, graniteMoe } from "./granite.ts";
import { llama } from "./llama.ts";
import { mistral } from "./mistral.ts";
import { mixtral } from "./mixtral.ts";
import { olmo2 } from "./olmo2.ts";
import { olmoe } from "./olmoe.ts";
import { phi } from "./phi.ts";
import { phi3 } from "./phi3.ts";
import { qwen2, qwen2Moe } from "./qwen2.ts";
import { qwen3, qwen3Moe } from "./qwen3.ts";
import { smollm3 } from "./smollm3.ts";
import { stablelm } from "./stablelm.ts";
import { starcoder2 } from "./starcoder2.ts";

export { type Architecture, architecture } from "./architecture.ts";
export { contextLength, longRopeAfter } from "./limits.ts";

export const architectures: readonly Architecture[] = [
  llama,
  mistral,
  mixtral,
  qwen2,
  qwen2Moe,
  qwen3,
  qwen3Moe,
  gemma,
  gemma2,
  gemma3,
  phi,
  phi3,
  gpt2,
  gptNeox,
  olmo2,
  olmoe,
  smollm3,
  granite,
  graniteMoe,
  cohere,
  cohere2,
  exaone4,
  falcon,
  glm4,
  stablelm,
  starcoder2,
];

/** The architecture with that class name, one of the `extra` (the user's own) first. Errors: IX_UNSUPPORTED_ARCHITECTURE. */
export function findArchitecture(name: string, extra: readonly Architecture[] = []): Architecture {
  const all = [...extra, ...architectures];
  const found = all.find((a) => a.names.includes(name));
  if (found) return found;
  const known = all.flatMap((a) => a.names);
  const message = `unknown architecture "${name}"; known are ${known.join(", ")}`;
  throw new InferxError("IX_UNSUPPORTED_ARCHITECTURE", message, { name, known });
}
