// One sequence on an executor, step by step, without loop and scheduler: what `inspect --diff` and the golden tests look at.
import type { NativeBinding, NativeDevice, NativeExecutor } from "../../types/native.d.ts";
import { invariant } from "../base/invariant.ts";
import type { CompiledModel } from "../compile/compile.ts";

export interface SingleRunOptions {
  /** Look for NaN after each op. */
  checked?: boolean;
}

export class SingleRun {
  readonly compiled: CompiledModel;
  readonly executor: NativeExecutor;
  readonly #buffer: ArrayBuffer;
  readonly #i32: Int32Array;
  readonly #blocks: number;
  #position = 0;

  private constructor(compiled: CompiledModel, executor: NativeExecutor, blocks: number) {
    this.compiled = compiled;
    this.executor = executor;
    this.#buffer = new ArrayBuffer(compiled.layout.inputBytes);
    this.#i32 = new Int32Array(this.#buffer);
    this.#blocks = blocks;
  }

  /** Loads the weights anew. `compiled` has room for one sequence of its context. @throws as loading does */
  static async open(
    binding: NativeBinding,
    device: NativeDevice,
    compiled: CompiledModel,
    contextLength: number,
    { checked = false }: SingleRunOptions = {},
  ): Promise<SingleRun> {
    const key = `single run ${device.info().kind} ${JSON.stringify(compiled.loadKey)}`;
    const weights = new binding.Weights(device, compiled.plan, compiled.tensors, compiled.origin, key);
    await weights.ready();
    const blocks = Math.ceil(contextLength / (compiled.groups[0]?.tokensPerBlock ?? 1));
    const executor = new binding.Executor(device, compiled.plan, weights, {
      blocks: compiled.groups.map(() => blocks),
      checked,
    });
    return new SingleRun(compiled, executor, blocks);
  }

  /** Forgets the sequence. */
  reset(): void {
    this.#position = 0;
  }

  /** Computes tokens behind those of earlier calls; logits f32 [tokens, vocabulary] of all of them. */
  forward(tokens: readonly number[], ropeRow = 0): Float32Array {
    const { layout, groups, outputs, vocabularySize } = this.compiled;
    const count = tokens.length;
    const first = this.#position;
    const commands: number[] = [];
    const set = (name: string, values: ArrayLike<number>) => {
      const input = layout.inputs.get(name);
      if (input) this.#i32.set(values, input.offset / 4);
    };
    const each = (f: (i: number) => number) => Array.from({ length: count }, (_, i) => f(i));
    set("tokens", tokens);
    set(
      "positions",
      each((i) => first + i),
    );
    set(
      "rope_row",
      each(() => ropeRow),
    );
    set(
      "row_index",
      each((i) => i),
    );
    set("seq_start", [0, count]);
    set("seq_context", [first + count]);
    set("seq_row", [0]);
    groups.forEach(({ tokensPerBlock }, g) => {
      set(
        `slots.${g}`,
        each((i) => first + i),
      );
      const used = Math.ceil((first + count) / tokensPerBlock);
      invariant(used <= this.#blocks, "the sequence fits the context");
      for (let block = 0; block < used; block++) commands.push(1, g, 0, block, block);
    });
    // Nothing is drawn: each row is asked for the log-probability of token 0.
    set(
      "target",
      each(() => 0),
    );
    for (const name of ["sample_row", "row_state", "mask_row", "num_logprobs"])
      set(
        name,
        each(() => -1),
      );
    const index = outputs.indexOf("logits");
    const ticket = this.executor.submit({
      dims: [count, 1, count],
      inputs: this.#buffer,
      commands: Int32Array.from(commands),
      numCommands: commands.length,
      wanted: 2 ** index,
    });
    const logits = new Float32Array(count * vocabularySize);
    this.executor.wait(
      ticket,
      outputs.map((_, i) => (i === index ? logits : null)),
    );
    this.#position += count;
    return logits;
  }

  close(): void {
    this.executor.close();
  }
}
