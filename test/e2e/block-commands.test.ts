// What steps do to whole blocks, on the real executor: poison is seen through a stale table, and a move to the host and back by none.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { blockOp } from "../../lib/cache/block-ops.ts";
import type { CompiledModel } from "../../lib/compile/compile.ts";
import { native } from "../../lib/native/binding.ts";
import type { NativeExecutor } from "../../types/native.d.ts";
import { openTestDevice } from "../device.ts";
import { demoPath } from "./models.ts";
import { NativeRun } from "./native-run.ts";

const numBlocks = 8;
const hostSlots = 2;
const prompt = Array.from({ length: 50 }, (_, i) => (i * 37) % 4096);
let run: NativeRun;
let compiled: CompiledModel;
let open: (checked?: boolean) => NativeExecutor;
const opened: NativeExecutor[] = [];

/** Logits of the last of `tokens`, which stand at `first` and behind in row 0. */
function step(
  executor: NativeExecutor,
  tokens: number[],
  first: number,
  table: number[],
  commands: number[][] = [],
): Float32Array {
  const { layout, groups, outputs, vocabularySize } = compiled;
  const inputs = new Int32Array(layout.inputBytes / 4);
  const set = (name: string, values: number[]) => inputs.set(values, layout.inputs.get(name)!.offset / 4);
  const positions = tokens.map((_, i) => first + i);
  set("tokens", tokens);
  set("positions", positions);
  set("row_index", [tokens.length - 1]);
  set("seq_start", [0, tokens.length]);
  set("seq_context", [first + tokens.length]);
  for (const name of ["sample_row", "row_state", "mask_row", "num_logprobs", "target"]) set(name, [-1]);
  const all = [...commands];
  groups.forEach(({ tokensPerBlock: width }, g) => {
    table.forEach((block, column) => void all.push([1, g, 0, column, block]));
    set(
      `slots.${g}`,
      positions.map((p) => table[Math.floor(p / width)]! * width + (p % width)),
    );
  });
  const logits = new Float32Array(vocabularySize);
  const index = outputs.indexOf("logits");
  const list = Int32Array.from(all.flat());
  const ticket = executor.submit({
    dims: [tokens.length, 1, 1],
    inputs: inputs.buffer,
    commands: list,
    numCommands: list.length,
    wanted: 2 ** index,
  });
  executor.wait(
    ticket,
    outputs.map((_, i) => (i === index ? logits : null)),
  );
  return logits;
}

const code = (name: string) => expect.objectContaining({ code: name });
const each = (op: number, from: number, to: number) => compiled.groups.map((_, g) => [op, g, from, to]);
const poison = (block: number) => compiled.groups.map((_, g) => [blockOp.poison, g, block]);

describe.each(["f32", "bf16"] as const)("a cache in %s", (cacheDtype) => {
  beforeAll(async () => {
    run = await NativeRun.open(demoPath, { cacheDtype });
    ({ compiled } = run);
    const binding = native();
    const device = openTestDevice(binding);
    const weights = new binding.Weights(
      device,
      compiled.plan,
      compiled.tensors,
      compiled.origin,
      `block commands ${cacheDtype}`,
    );
    await weights.ready();
    open = (checked = true) => {
      const { groups, plan } = compiled;
      const perGroup = (count: number) => groups.map(() => count);
      const sizes = { blocks: perGroup(numBlocks), hostSlots: perGroup(hostSlots) };
      opened.push(new binding.Executor(device, plan, weights, { ...sizes, checked }));
      return opened.at(-1)!;
    };
  });
  afterAll(() => {
    for (const executor of opened.splice(0)) executor.close();
    run?.close();
  });

  test("a block that was freed is NaN: who reads it through a stale table hears of it", () => {
    const executor = open();
    step(executor, prompt, 0, [0, 1]);
    expect(step(executor, [7], 50, [0, 1]).every(Number.isFinite)).toBe(true);
    expect(() => step(executor, [8], 51, [0, 1], poison(0))).toThrow(code("IX_DEVICE"));
  });

  test("poison where no position of a sequence lies changes nothing", () => {
    const [clean, poisoned] = [open(), open()];
    const blocks = Array.from({ length: numBlocks }, (_, block) => poison(block)).flat();
    // Two blocks, the second of them written in part, one token after another.
    for (let first = 0; first < prompt.length; first += 25) {
      const tokens = prompt.slice(first, first + 25);
      const wanted = step(clean, tokens, first, [5, 2]);
      expect(step(poisoned, tokens, first, [5, 2], first === 0 ? blocks : [])).toEqual(wanted);
    }
    for (let i = 0; i < 8; i++) expect(step(poisoned, [i], 50 + i, [5, 2])).toEqual(step(clean, [i], 50 + i, [5, 2]));
  });

  test("moved to the host, poisoned and brought back into another block: the same logits", () => {
    const [still, moved] = [open(), open()];
    for (const executor of [still, moved]) step(executor, prompt, 0, [0, 1]);
    const wanted = [step(still, [7], 50, [0, 1]), step(still, [8], 51, [0, 1])];
    const out = [...each(blockOp.swapOut, 0, 1), ...each(blockOp.swapOut, 1, 0), ...poison(0), ...poison(1)];
    const back = [...each(blockOp.swapIn, 1, 6), ...each(blockOp.swapIn, 0, 3)];
    expect(step(moved, [7], 50, [6, 3], [...out, ...back])).toEqual(wanted[0]);
    // In the same order within a step as over several.
    step(moved, [9], 0, [7], [...each(blockOp.swapOut, 6, 0), ...poison(6)]);
    expect(step(moved, [8], 51, [4, 3], each(blockOp.swapIn, 0, 4))).toEqual(wanted[1]);
  });

  test("blocks and host slots out of range are refused", () => {
    const executor = open();
    const wrong = [
      ...[
        [-1, 0],
        [numBlocks, 0],
        [0, -1],
        [0, hostSlots],
      ].map((places) => [blockOp.swapOut, 0, ...places]),
      ...[
        [-1, 0],
        [hostSlots, 0],
        [0, -1],
        [0, numBlocks],
      ].map((places) => [blockOp.swapIn, 0, ...places]),
      [blockOp.poison, 0, numBlocks],
      [blockOp.poison, 0, -1],
      [blockOp.swapIn, compiled.groups.length, 0, 0],
      [blockOp.swapIn, 0, 0],
      [blockOp.poison, 0],
      [10, 0, 0, 0],
    ];
    for (const command of wrong) {
      expect(() => step(executor, [1], 0, [], [command])).toThrow(code("IX_INVALID_ARGUMENT"));
    }
    expect(step(executor, [1], 0, [0]).every(Number.isFinite)).toBe(true);
  });
});
