// Writes the plan file (format: docs/plan.md). Nothing is decided here: graph, kernels and places are given.
import { InferxError } from "../base/errors.ts";
import { invariant } from "../base/invariant.ts";
import {
  type Dim,
  type Graph,
  type InputValue,
  type Node,
  programs,
  type Value,
  type WeightValue,
} from "../ir/graph.ts";
import { operandsOf } from "../ir/links.ts";
import { opOf } from "../ir/ops/index.ts";
import * as format from "./plan-format.ts";
import { boundOf, type Limits, type Memory } from "./plan-memory.ts";
import { PlanWriter } from "./plan-writer.ts";
import { type KernelInfo, viewOps } from "./select-kernels.ts";

export interface EmitOptions {
  readonly kernels: readonly KernelInfo[];
  readonly memory: Memory;
  readonly limits: Limits;
  readonly cacheType: "kv_f32" | "kv_bf16";
  readonly buildId: number;
}

export function emit(graph: Graph, { kernels, memory, limits, cacheType, buildId }: EmitOptions): Uint8Array {
  const writer = new PlanWriter();
  const usedKernels = [...new Set(graph.nodes.flatMap(({ kernel }) => (kernel === undefined ? [] : [kernel])))];
  const weights = operandsOf(graph).filter((value) => value.kind === "weight");
  const constants = operandsOf(graph).filter((value) => value.kind === "constant");
  const staged = graph.inputs.filter((input) => !input.persistent);
  const states = graph.inputs.filter((input) => input.persistent);
  const tokenBytes = cacheType === "kv_bf16" ? 2 : 4;
  const blockBytes = graph.groups.map((g) => g.layers * 2 * g.kvHeads * g.headDim * limits.blockTokens * tokenBytes);

  const dim = (value: Dim): number => {
    const symbol = format.symbols.indexOf(value as "T");
    return symbol >= 0 ? -1 - symbol : boundOf(value, limits);
  };
  const shape = (value: Value): number[] => value.shape.map(dim);

  /** space, index, type, dims, offset, stride */
  const place = (value: Value): [format.PlanSpace, number, format.PlanType, number[], number, number] => {
    const dims = shape(value);
    const dense = dims.slice(1).reduce((a, b) => a * b, 1);
    switch (value.kind) {
      case "weight":
        return ["weight", weights.indexOf(value), "layout", dims, 0, dense];
      case "constant":
        return ["constant", constants.indexOf(value), "f32", dims, 0, dense];
      case "input":
        return value.persistent
          ? ["state", states.indexOf(value), value.dtype, dims, 0, dense]
          : ["input", staged.indexOf(value), value.dtype, dims, 0, dense];
      case "cache": {
        const bytes = blockBytes[value.group]!;
        const { layers, kvHeads, headDim } = graph.groups[value.group]!;
        return [
          "cache",
          value.group,
          "cache",
          [0, limits.blockTokens, kvHeads, headDim],
          (bytes / layers) * value.layer,
          bytes,
        ];
      }
      case "result": {
        const { offset, stride } = memory.arena.get(value)!;
        return ["arena", 0, value.dtype as "f32" | "i32" | "u32" | "bf16", dims, offset, stride];
      }
    }
  };
  const operand = (value: Value | undefined): number => {
    const [space, index, type, dims, offset, stride] = value
      ? place(value)
      : (["omitted", 0, "f32", [], 0, 0] as const);
    const record = writer.record("operands");
    record.u32(format.spaceCodes.indexOf(space)).u32(index).u32(format.typeCodes.indexOf(type));
    return record.dims(dims).u64(offset).u64(stride).index;
  };

  const step = (node: Node): void => {
    invariant(node.kernel !== undefined, `${node.name} has a kernel`);
    const { operands, scalars, results } = opOf(node.op).signature;
    const made = node.outputs.filter((_, i) => results[i]!.inPlaceOf === undefined);
    const records = [...operands.map((_, i) => node.operands[i]), ...made].map(operand);
    const values = scalars.map(({ name, type }) => {
      const record = writer.record("scalars");
      return (type === "i32" ? record.i64(node.attrs[name]!) : record.f64(node.attrs[name]!)).index;
    });
    const record = writer.record("steps").u32(usedKernels.indexOf(node.kernel)).u32(records[0]!).u32(records.length);
    record
      .u32(values[0] ?? 0)
      .u32(values.length)
      .u32(0)
      .str(node.name);
  };

  for (const name of programs) {
    const nodes = graph.nodes.filter((node) => node.program === name && !viewOps.has(node.op));
    const first = writer.count("steps");
    nodes.forEach(step);
    writer.record("programs").str(name).u32(first).u32(nodes.length);
  }
  for (const [name, value] of graph.outputs) {
    const maker = graph.nodes.find((node) => node.outputs.includes(value))!;
    writer.record("outputs").str(name).u32(programs.indexOf(maker.program)).u32(operand(value));
  }
  for (const index of usedKernels) {
    const { signature, tags, backend = "" } = kernels[index]!;
    writer.record("kernels").str(signature).str(tags).str(backend);
  }
  for (const weight of weights) emitWeight(writer, weight);
  for (const { name, shape: dims, data } of constants) {
    writer.record("constants").str(name).dims(dims).u32(0).u64(writer.count("floats"));
    for (const value of data) writer.record("floats").f32(value);
  }
  const described = (record: ReturnType<PlanWriter["record"]>, input: InputValue) =>
    record.str(input.name).u32(format.typeCodes.indexOf(input.dtype)).dims(shape(input));
  for (const input of staged) {
    const { elements, offset } = memory.inputs.get(input)!;
    described(writer.record("inputs"), input).u64(elements).u64(offset);
  }
  for (const state of states) {
    described(writer.record("states"), state).u64(shape(state).reduce((a, b) => a * b, 4));
  }
  graph.groups.forEach((group, i) => {
    const record = writer
      .record("groups")
      .u32(format.groupKinds.indexOf(group.kind))
      .u32(group.window)
      .u32(group.layers);
    record.u32(group.kvHeads).u32(group.headDim).u32(limits.blockTokens).u32(staged.indexOf(group.slots));
    record.u32(states.indexOf(group.blockTable)).u64(blockBytes[i]!).str(cacheType);
  });
  const { maxTokens, maxSequences, maxLogitRows } = limits;
  const { arenaBytes, inputBytes } = memory;
  return writer.finish({ buildId, bounds: [maxTokens, maxSequences, maxLogitRows], arenaBytes, inputBytes });
}

function emitWeight(writer: PlanWriter, { name, dtype, shape, sources }: WeightValue): void {
  if (sources.length === 0) throw new InferxError("IX_PLAN", `weight ${name} has no sources`);
  const first = writer.count("sources");
  for (const { tensor, rowStart, rowCount, ropeHeads, transposed, addOne, scale } of sources) {
    const flags = (transposed ? format.sourceFlags.transposed : 0) | (addOne ? format.sourceFlags.addOne : 0);
    writer.record("sources").str(tensor).u64(rowStart).u64(rowCount).u32(ropeHeads).u32(flags).f64(scale);
  }
  writer.record("weights").str(name).str(dtype).dims(shape).u32(first).u32(sources.length).u32(0);
}
