// Runs a compiled model on the addon step by step, without engine and scheduler: what golden and conformance tests look at.
import { compileModel, type CompiledModel } from "../../lib/compile/compile.ts";
import { openCheckpoint } from "../../lib/formats/checkpoint.ts";
import { native } from "../../lib/native/binding.ts";
import type { NativeExecutor } from "../../types/native.d.ts";

export interface RunOptions {
  numerics?: "f32" | "fast";
  cacheDtype?: "f32" | "bf16";
  maxStepTokens?: number;
  checked?: boolean;
}

const tokensPerBlock = 32;

export class NativeRun {
  readonly compiled: CompiledModel;
  readonly #executor: NativeExecutor;
  readonly #buffer: ArrayBuffer;
  readonly #i32: Int32Array;
  readonly #f32: Float32Array;
  #position = 0;

  private constructor(compiled: CompiledModel, executor: NativeExecutor) {
    this.compiled = compiled;
    this.#executor = executor;
    this.#buffer = new ArrayBuffer(compiled.layout.inputBytes);
    this.#i32 = new Int32Array(this.#buffer);
    this.#f32 = new Float32Array(this.#buffer);
  }

  static async open(path: string, options: RunOptions = {}): Promise<NativeRun> {
    const { numerics = "f32", cacheDtype = "f32", maxStepTokens = 256, checked = true } = options;
    const checkpoint = openCheckpoint(path);
    const binding = native();
    const device = new binding.Device("cpu", 0, 2, "");
    const compiled = compileModel(checkpoint, {
      kernels: device.kernels(),
      numerics,
      cacheDtype,
      maxStepTokens,
      maxSequences: 1,
      contextLength: 1024,
      tokensPerBlock,
      architectures: [],
      panelBytes: (layout, columns) => device.panelBytes(layout, columns),
      panelRows: 32,
    });
    const files = checkpoint.files.map((file) => file.path);
    const weights = new binding.Weights(device, compiled.plan, compiled.tensors, files, `${path} ${numerics} ${Math.random()}`);
    await weights.ready();
    const blocks = compiled.groups.map(() => 1024 / tokensPerBlock);
    return new NativeRun(compiled, new binding.Executor(device, compiled.plan, weights, { blocks, checked }));
  }

  /** Forgets the sequence. */
  reset(): void {
    this.#position = 0;
  }

  /** Computes tokens behind those of earlier calls; logits [tokens, vocabulary] of all of them. */
  forward(tokens: readonly number[], ropeRow = 0): Float32Array {
    const count = tokens.length;
    const first = this.#position;
    const commands: number[] = [];
    const set = (name: string, values: ArrayLike<number>) => this.#i32.set(values, this.compiled.layout.inputs.get(name)!.offset / 4);
    const range = (f: (i: number) => number) => Array.from({ length: count }, (_, i) => f(i));
    set("tokens", tokens);
    set("positions", range((i) => first + i));
    set("rope_row", range(() => ropeRow));
    set("row_index", range((i) => i));
    set("seq_start", [0, count]);
    set("seq_context", [first + count]);
    set("seq_row", [0]);
    for (let g = 0; g < this.compiled.groups.length; g++) {
      set(`slots.${g}`, range((i) => first + i));
      for (let block = 0; block * tokensPerBlock < first + count; block++) commands.push(1, g, 0, block, block);
    }
    for (const name of ["sample_row", "row_state", "mask_row", "target"]) set(name, range(() => (name === "target" ? 0 : -1)));
    set("num_logprobs", range(() => -1));
    const index = this.compiled.outputs.indexOf("logits");
    const ticket = this.#executor.submit({
      dims: [count, 1, count],
      inputs: this.#buffer,
      commands: Int32Array.from(commands),
      numCommands: commands.length,
      wanted: 1 << index,
    });
    const logits = new Float32Array(count * this.compiled.vocabularySize);
    const outputs: (Float32Array | null)[] = this.compiled.outputs.map(() => null);
    outputs[index] = logits;
    this.#executor.wait(ticket, outputs);
    this.#position += count;
    return logits;
  }

  close(): void {
    this.#executor.close();
  }
}
