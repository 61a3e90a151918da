// What checked mode promises, on the real executor: whatever an op leaves unwritten is NaN, and who reads it hears of it.
// What commands do to blocks: block-commands.test.ts.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { CompiledModel } from "../../lib/compile/compile.ts";
import { native } from "../../lib/native/binding.ts";
import type { NativeExecutor } from "../../types/native.d.ts";
import { addon, openTestDevice } from "../device.ts";
import { NativeRun } from "./native-run.ts";

const shape = {
  architectures: ["LlamaForCausalLM"],
  hidden_size: 128,
  intermediate_size: 160,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 64,
  max_position_embeddings: 1024,
  vocab_size: 256,
};
const hasAddon = addon() !== undefined;
const error = expect.objectContaining({ code: "IX_DEVICE", message: expect.stringMatching(/NaN in operand/) });

describe.skipIf(!hasAddon).each([
  { numerics: "f32", cacheDtype: "f32" },
  { numerics: "fast", cacheDtype: "bf16" },
] as const)(hasAddon ? "$numerics" : "$numerics (SKIPPED: the addon is not built)", (options) => {
  let run: NativeRun;
  let compiled: CompiledModel;
  let open: (checked: boolean) => NativeExecutor;
  const opened: NativeExecutor[] = [];
  beforeAll(async () => {
    run = await NativeRun.open({ shape, seed: 5 }, options);
    ({ compiled } = run);
    const binding = native();
    const device = openTestDevice(binding);
    const key = `checked mode ${options.numerics}`;
    const weights = new binding.Weights(device, compiled.plan, compiled.tensors, compiled.origin, key);
    await weights.ready();
    open = (checked) => {
      const perGroup = (count: number) => compiled.groups.map(() => count);
      const sizes = { blocks: perGroup(4), hostSlots: perGroup(0) };
      opened.push(new binding.Executor(device, compiled.plan, weights, { ...sizes, checked }));
      return opened.at(-1)!;
    };
  });
  afterAll(() => {
    for (const executor of opened.splice(0)) executor.close();
    run?.close();
  });

  /** The first `own` of `count` tokens from position `first` on are sequence 0's, the others nobody's; logits of the last one. */
  function step(executor: NativeExecutor, first: number, count: number, own = count): Float32Array {
    const { layout, groups, outputs, vocabularySize } = compiled;
    const inputs = new Int32Array(layout.inputBytes / 4);
    const set = (name: string, values: number[]) => inputs.set(values, layout.inputs.get(name)!.offset / 4);
    const positions = Array.from({ length: count }, (_, i) => first + i);
    set("tokens", positions);
    set("positions", positions);
    set("row_index", [own - 1]);
    set("seq_start", [0, own]);
    set("seq_context", [first + own]);
    for (const name of ["sample_row", "row_state", "mask_row", "num_logprobs"]) set(name, [-1]);
    const commands: number[] = [];
    groups.forEach(({ tokensPerBlock }, g) => {
      for (let block = 0; block < 4; block++) commands.push(1, g, 0, block, block);
      set(
        `slots.${g}`,
        positions.map((position, i) => (i < own ? position : -1)),
      );
      expect(first + own).toBeLessThanOrEqual(4 * tokensPerBlock);
    });
    const index = outputs.indexOf("logits");
    const ticket = executor.submit({
      dims: [count, 1, 1],
      inputs: inputs.buffer,
      commands: Int32Array.from(commands),
      numCommands: commands.length,
      wanted: 2 ** index,
    });
    const logits = new Float32Array(vocabularySize);
    executor.wait(
      ticket,
      outputs.map((_, i) => (i === index ? logits : null)),
    );
    return logits;
  }

  test("what an op does not write is NaN: attention leaves rows of no sequence", () => {
    // The same rows were written by an earlier step: without poison their old values would pass.
    const executor = open(true);
    expect(step(executor, 0, 9).every(Number.isFinite)).toBe(true);
    expect(() => step(executor, 9, 9, 5)).toThrow(error);
    expect(step(open(false), 0, 9, 5).every(Number.isFinite)).toBe(true);
  });

  test("poison changes no result", () => {
    const [checked, plain] = [open(true), open(false)];
    for (const [first, count] of [
      [0, 40],
      [40, 1],
      [41, 30],
      [71, 1],
    ] as const) {
      expect(step(checked, first, count)).toEqual(step(plain, first, count));
    }
  });
});
