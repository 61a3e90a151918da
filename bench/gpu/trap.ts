// Makes a GPU fail as a kernel with a fault does: runs a plan whose tanh is replaced by csrc/cuda/primitive/trap.cu.
// bundle.mjs packs this into carry/gpu/trap.mjs for faults.mjs, which knows the public API only.
import { createBuilder } from "../../lib/ir/builder.ts";
import { cudaLibrary, native } from "../../lib/native/binding.ts";
import { decodePlan } from "../../lib/passes/decode.ts";
import { emit } from "../../lib/passes/emit.ts";
import { lower } from "../../lib/passes/index.ts";
import { planMemory } from "../../lib/passes/plan-memory.ts";

const limits = {
  maxTokens: 1,
  maxSequences: 1,
  maxLogitRows: 1,
  maxRunning: 1,
  contextTokens: 64,
  blockTokens: 64,
  maxBias: 1,
};

/** On a device of its own, closed afterwards. Resolves to the code of the error that the step gave. */
export async function trap(): Promise<string> {
  const binding = native();
  const device = new binding.Device("cuda", 0, 0, cudaLibrary());
  const kernels = device.kernels();
  const shape = [64, 64];
  const g = createBuilder(new Map(["embed.weight", "head.weight"].map((name) => [name, { dtype: "f32", shape }])));
  const x = g.primitive("tanh", g.gather(g.embed(g.tokens, g.weight("embed")), g.rowIndex));
  g.output("logits", g.linear(x, g.weight("head")));
  const { graph } = lower(g.finish(), { kernels, limits });
  const trapped = kernels.map((kernel) =>
    kernel.signature.startsWith("tanh(")
      ? { ...kernel, signature: kernel.signature.replace("tanh", "trap"), tags: "for=test" }
      : kernel,
  );
  const memory = planMemory(graph, limits);
  const plan = emit(graph, { kernels: trapped, memory, limits, cacheType: "kv_f32", buildId: 0 });
  const tensors = ["embed.weight", "head.weight"].map((name) => {
    return { name, dtype: "f32", file: 0, offset: 0, bytes: 64 * 64 * 4, dims: shape };
  });
  const weights = new binding.Weights(device, plan, tensors, { seed: 0 }, "trap");
  await weights.ready();
  const executor = new binding.Executor(device, plan, weights, { blocks: [], checked: false });
  try {
    const inputs = new ArrayBuffer(decodePlan(plan).inputBytes);
    const step = { dims: [1, 1, 1] as [number, number, number], inputs, commands: new Int32Array(), numCommands: 0 };
    executor.wait(executor.submit({ ...step, wanted: 0 }), []);
    return "none";
  } catch (error) {
    return (error as { code: string }).code;
  } finally {
    executor.close();
    weights.release();
    device.close();
  }
}
