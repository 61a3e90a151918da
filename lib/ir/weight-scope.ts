// A place in a checkpoint: the weights below a name prefix, as they are or derived from several. The half of a builder (builder.ts)
// that reads; numbers stay in the checkpoint, only names, shapes and row sources are handled here.
import { InferxError } from "../base/errors.ts";
import type { WeightValue } from "./graph.ts";
import type { GraphState } from "./graph-state.ts";
import { concatRows, mapSources, sliceRows, stack } from "./weights.ts";

export class WeightScope {
  /** Put before the names of weights and nodes: "model.layers.3". */
  readonly prefix: string;
  protected readonly state: GraphState;

  constructor(state: GraphState, prefix: string) {
    this.state = state;
    this.prefix = prefix;
  }

  /** Does the checkpoint have this tensor, as named or with ".weight" after the name? */
  has(name: string): boolean {
    return this.#find(name) !== undefined;
  }

  /**
   * The tensor `<prefix>.<name>.weight`, or `<prefix>.<name>` where that exists (so biases are `weight("q_proj.bias")`).
   * @throws IX_MODEL_FORMAT when the checkpoint has neither.
   */
  weight(name: string): WeightValue {
    const found = this.weightOptional(name);
    if (!found) throw new InferxError("IX_MODEL_FORMAT", `the checkpoint has no tensor "${this.path(name)}.weight"`);
    return found;
  }

  /** For a tied head: `g.weightOptional("lm_head") ?? g.weight("model.embed_tokens")`; the same tensor is the same value. */
  weightOptional(name: string): WeightValue | undefined {
    const found = this.#find(name);
    return found === undefined ? undefined : this.state.weight(found);
  }

  /** The tensor `<prefix>.<name>.bias`. */
  biasOptional(name: string): WeightValue | undefined {
    return this.weightOptional(`${name}.bias`);
  }

  /** A matrix stored [in, out] (gpt2's Conv1D) as [out, in]. */
  transposed(name: string): WeightValue {
    const w = this.weight(name);
    const [rows, columns] = w.shape;
    if (w.shape.length !== 2)
      throw new InferxError("IX_MODEL_CONFIG", `${w.name} has rank ${w.shape.length}, a matrix is needed`);
    return { ...w, shape: [columns!, rows!], sources: [{ ...w.sources[0]!, rowCount: columns!, transposed: true }] };
  }

  /**
   * The stacked matrices [E, N, K] of `<name>.<e>.<part>.weight`, e < count; of several parts each expert has the parts' rows in
   * order: `experts("mlp.experts", 8, ["gate_proj", "up_proj"])` is [8, 2F, K], ready for `gatedAct` with groups = experts per token.
   */
  experts(name: string, count: number, parts: readonly string[]): WeightValue {
    const each = Array.from({ length: count }, (_, e) =>
      parts.length === 1
        ? this.weight(`${name}.${e}.${parts[0]}`)
        : concatRows(
            parts.map((part) => this.weight(`${name}.${e}.${part}`)),
            `${this.path(name)}.${e}`,
          ),
    );
    return stack(each, `${this.path(name)}.${parts.join("+")}`);
  }

  concatRows(weights: readonly WeightValue[]): WeightValue {
    return concatRows(weights, weights.map((w) => w.name).join("+"));
  }

  /** Rows `start` … `start + count - 1`, or elements of a vector. */
  sliceRows(weight: WeightValue, start: number, count: number): WeightValue {
    return sliceRows(weight, start, count);
  }

  /** 1 + w, for norms that are stored as the difference to 1. */
  addOne(weight: WeightValue): WeightValue {
    return mapSources(weight, (s) => ({ ...s, addOne: !this.state.hasOneAdded(s.tensor) }));
  }

  /** A weight times a number, at load. */
  scaleWeight(weight: WeightValue, factor: number): WeightValue {
    return mapSources(weight, (s) => ({ ...s, scale: s.scale * factor }));
  }

  protected path(name: string): string {
    return this.prefix === "" ? name : `${this.prefix}.${name}`;
  }

  #find(name: string): string | undefined {
    const path = this.path(name);
    return [`${path}.weight`, path].find((candidate) => this.state.checkpoint.has(candidate));
  }
}
