// A model without files: the configuration's architecture, and for every tensor that its builder asks for random values.
// Not here: the shapes (formats/tensor-shapes.ts), the values (formats/random-values.ts, made natively by the loader).
import { InferxError } from "../base/errors.ts";
import { checkInt, checkKeys, checkObject } from "../base/options.ts";
import { type Checkpoint, checkpointOfConfig } from "../formats/checkpoint.ts";
import { dtypeBytes } from "../formats/dtypes.ts";
import type { RandomDType } from "../formats/random-values.ts";
import { tensorShapes } from "../formats/tensor-shapes.ts";
import { createBuilder } from "../ir/builder.ts";
import type { CheckpointTensor } from "../ir/graph.ts";
import { type Architecture, findArchitecture } from "../models/index.ts";

/** A model of random weights in place of a path: see `Model.load`. */
export interface RandomModel {
  /** The contents of a config.json in Hugging Face's layout. */
  shape: Readonly<Record<string, unknown>>;
  /** 0 to 2^32 - 1; default 0. */
  seed?: number | undefined;
}

const dtypeOfTorch: Record<string, RandomDType> = { bfloat16: "bf16", float16: "f16", float32: "f32" };
/** Far above any model; keeps an absurd number of experts from taking the host's memory as names. */
const maxTensors = 1 << 18;
/** Likewise heads, which builders may list one by one. */
const maxHeads = 1 << 16;

/** Grows by what a builder asks for, as far as such a model has it. */
class AskedTensors extends Map<string, CheckpointTensor> {
  readonly #dtype: RandomDType;
  readonly #shapeOf: (name: string) => number[] | undefined;

  constructor(dtype: RandomDType, shapeOf: (name: string) => number[] | undefined) {
    super();
    this.#dtype = dtype;
    this.#shapeOf = shapeOf;
  }

  override has(name: string): boolean {
    if (super.has(name)) return true;
    const shape = this.#shapeOf(name);
    if (!shape) return false;
    if (this.size === maxTensors) {
      throw new InferxError("IX_OUT_OF_MEMORY", `the shape has more than ${maxTensors} tensors`, { maxTensors });
    }
    this.set(name, { dtype: this.#dtype, shape });
    return true;
  }
}

/** @throws IX_INVALID_ARGUMENT, IX_MODEL_CONFIG, IX_UNSUPPORTED_ARCHITECTURE, IX_OUT_OF_MEMORY (too many tensors) */
export function randomCheckpoint(model: RandomModel, architectures: readonly Architecture[]): Checkpoint {
  checkKeys("a random model", model, ["shape", "seed"]);
  checkObject("shape", model.shape);
  const seed = checkInt("seed", model.seed ?? 0, 0, 2 ** 32 - 1);
  const checkpoint = checkpointOfConfig(model.shape);
  const { architecture, config } = checkpoint;
  const torch = String(config.torch_dtype ?? "bfloat16");
  const dtype = Object.hasOwn(dtypeOfTorch, torch) ? dtypeOfTorch[torch] : undefined;
  if (!dtype) {
    const message = `config key "torch_dtype" must be ${Object.keys(dtypeOfTorch).join(", ")} or absent, got "${torch}"`;
    throw new InferxError("IX_MODEL_CONFIG", message, { key: "torch_dtype" });
  }
  const heads = config.num_attention_heads ?? config.n_head;
  if (typeof heads === "number" && heads > maxHeads) {
    throw new InferxError("IX_MODEL_CONFIG", `${heads} attention heads are more than ${maxHeads}`, { heads });
  }
  const asked = new AskedTensors(dtype, tensorShapes(architecture, config));
  findArchitecture(architecture, architectures).build(createBuilder(asked), config);
  for (const [name, { shape }] of asked) {
    const byteLength = dtypeBytes(
      dtype,
      shape.reduce((a, b) => a * b, 1),
    );
    checkpoint.tensors.set(name, { name, dtype, shape: [...shape], file: 0, byteOffset: 0, byteLength });
  }
  return { ...checkpoint, seed };
}
