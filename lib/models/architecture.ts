// What an architecture is: the class names it answers to, the configuration keys it reads, and the function that builds its graph.
// Not here: the list of those that come with the package (index.ts), nor any block.
import { InferxError } from "../base/errors.ts";
import type { Builder } from "../ir/builder.ts";
import type { Value } from "../ir/graph.ts";
import { type Keys, readKeys, type Values } from "./config.ts";

/** An architecture that a model can be loaded with. */
export interface Architecture {
  /** Values of `architectures` in config.json: "LlamaForCausalLM". */
  readonly names: readonly string[];
  /**
   * Adds the model to the graph, with the outputs "logits" f32 [S, V] and, where the model has it, "hidden" f32 [S, D] (what the
   * output matrix sees). `config` is the normalised configuration. Errors: IX_MODEL_CONFIG, IX_MODEL_FORMAT (a tensor is missing).
   */
  readonly build: (g: Builder, config: object) => void;
}

/**
 * Describes an architecture. `build` gets the checked values of `config`'s keys and returns the logits f32 [S, V].
 *
 * @example
 * const mine = architecture("MineForCausalLM", {
 *   config: { num_hidden_layers: int, norm_eps: float.default(1e-5) },
 *   build(g, c) { ... return g.linear(x, g.weight("lm_head")); },
 * });
 */
export function architecture<K extends Keys>(
  names: string | readonly string[],
  definition: { config: K; build: (g: Builder, c: Values<K>) => Value },
): Architecture {
  return {
    names: typeof names === "string" ? [names] : names,
    build(g, config) {
      const logits = definition.build(g, readKeys(definition.config, config));
      if (logits.shape.length !== 2 || logits.shape[0] !== "S") {
        const message = `the architecture returned [${logits.shape.join(", ")}]; logits are [S, vocabulary], of rows gathered by rowIndex`;
        throw new InferxError("IX_MODEL_CONFIG", message, { shape: logits.shape });
      }
      g.output("logits", logits);
    },
  };
}
