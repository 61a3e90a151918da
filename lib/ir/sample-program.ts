// Appends the second program of a plan: from the graph's "logits" to tokens and log-probabilities, with its inputs
// (docs/plan.md, "The sample program"). Architectures know nothing of it.
import { InferxError } from "../base/errors.ts";
import type { DataType, Dim, Graph, InputValue, Value } from "./graph.ts";
import { sample } from "./ops/sample.ts";

/** In the order in which they lie in the input set. `sample_row` is read by the executor: the row that owns S, -1 = none. */
const rowInputs: readonly (readonly [string, DataType])[] = [
  ["sample_row", "i32"],
  ["row_state", "i32"],
  ["position", "i32"],
  ["sample_index", "i32"],
  ["target", "i32"],
  ["temperature", "f32"],
  ["top_k", "i32"],
  ["top_p", "f32"],
  ["min_p", "f32"],
  ["repetition", "f32"],
  ["presence", "f32"],
  ["frequency", "f32"],
  ["num_logprobs", "i32"],
  ["bias_start", "i32"],
  ["mask_row", "i32"],
];

/**
 * The graph with the outputs "token" i32 [S,1], "token_logprob" f32 [S,1], "top_tokens" i32 [S,top] and "top_logprobs" f32 [S,top].
 * A graph without the output "logits" (embeddings only), or that has the program already, stays as it is.
 */
export function withSampleProgram(graph: Graph, topLogprobs: number): Graph {
  const logits = graph.outputs.get("logits");
  if (!logits || graph.nodes.some(({ program }) => program === "sample")) return graph;
  const vocabulary = logits.shape[1]!;
  if (logits.shape[0] !== "S")
    throw new InferxError("IX_MODEL_CONFIG", `logits are [${logits.shape}], expected [S, vocabulary]`);
  const input = (name: string, dtype: DataType, shape: readonly Dim[], persistent = false): InputValue => {
    return { kind: "input", name, dtype, shape, persistent };
  };
  const inputs = [
    ...rowInputs.map(([name, dtype]) => input(name, dtype, ["S"])),
    input("seed", "u32", ["S", 2]),
    input("bias_token", "i32", ["B"]),
    input("bias_value", "f32", ["B"]),
    input("history", "u32", ["P", vocabulary], true),
  ];
  const byName = new Map<string, Value>([...inputs.map((value) => [value.name, value] as const), ["logits", logits]]);
  const result = (dtype: DataType, columns: number): Value => ({
    kind: "result",
    name: "sample",
    dtype,
    shape: ["S", columns],
  });
  const outputs = [result("i32", 1), result("f32", 1), result("i32", topLogprobs), result("f32", topLogprobs)];
  const operands = sample.signature.operands.map(({ name }) => byName.get(name));
  const names = ["token", "token_logprob", "top_tokens", "top_logprobs"];
  return {
    ...graph,
    inputs: [...graph.inputs, ...inputs],
    nodes: [
      ...graph.nodes,
      { op: "sample", operands, attrs: { top: topLogprobs }, outputs, name: "sample", program: "sample" },
    ],
    outputs: new Map([...graph.outputs, ...names.map((name, i) => [name, outputs[i]!] as const)]),
  };
}
