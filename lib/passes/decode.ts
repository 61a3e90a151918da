// Reads a plan file back, checked, and prints it: for dumps, `inspect`, the engine's layout of inputs, and tests.
// What runs is read by csrc/core/plan.cpp.
import { InferxError } from "../base/errors.ts";
import { programs, type RowSource } from "../ir/graph.ts";
import { parseSignature } from "../ir/signature.ts";
import * as format from "./plan-format.ts";
import { PlanReader, type RecordReader, require } from "./plan-reader.ts";

type Dims = readonly format.PlanDim[];

export interface PlanOperand {
  space: format.PlanSpace;
  index: number;
  type: format.PlanType;
  dims: Dims;
  offset: number;
  stride: number;
}

export interface PlanInput {
  name: string;
  type: format.PlanType;
  dims: Dims;
  elements: number;
  /** Bytes in the staged input set; 0 for states. */
  offset: number;
}

export interface PlanStep {
  name: string;
  kernel: number;
  operands: PlanOperand[];
  scalars: number[];
}

export interface Plan {
  buildId: number;
  rank: number;
  world: number;
  /** T, R, S. */
  bounds: [number, number, number];
  arenaBytes: number;
  inputBytes: number;
  kernels: { signature: string; tags: string; backend: string }[];
  weights: { name: string; layout: string; dims: number[]; sources: RowSource[] }[];
  constants: { name: string; dims: number[]; data: Float32Array }[];
  inputs: PlanInput[];
  states: PlanInput[];
  groups: {
    kind: "full" | "window";
    window: number;
    layers: number;
    kvHeads: number;
    headDim: number;
    blockTokens: number;
    slots: number;
    blockTable: number;
    blockBytes: number;
    type: string;
  }[];
  programs: { name: string; steps: PlanStep[] }[];
  outputs: { name: string; program: string; operand: PlanOperand }[];
}

const product = (dims: readonly number[]) => dims.reduce((a, b) => a * b, 1);
const named = (dims: readonly number[]): Dims => dims.map((d) => (d < 0 ? format.symbols[-1 - d]! : d));

/** @throws IX_PLAN for anything that docs/plan.md does not allow. */
export function decodePlan(bytes: Uint8Array): Plan {
  const reader = new PlanReader(bytes);
  const { header } = reader;
  const bound = (dim: format.PlanDim) => (typeof dim === "number" ? dim : header.bounds[format.symbols.indexOf(dim)]!);
  const typeCode = (r: RecordReader) => format.typeCodes[r.index(format.typeCodes.length, "type")]!;
  const fixed = (dims: number[]) => {
    require(dims.length > 0 && dims.every((d) => d > 0), `dims ${dims}`);
    return dims;
  };

  const sources = reader.records("sources", (r): RowSource => {
    const [tensor, rowStart, rowCount, ropeHeads, flags, scale] = [
      r.str(),
      r.u64(),
      r.u64(),
      r.u32(),
      r.u32(),
      r.f64(),
    ];
    require(rowCount > 0 && flags < 4 && Number.isFinite(scale), `source of ${tensor}`);
    const { transposed, addOne } = format.sourceFlags;
    return {
      tensor,
      rowStart,
      rowCount,
      ropeHeads,
      transposed: (flags & transposed) > 0,
      addOne: (flags & addOne) > 0,
      scale,
    };
  });
  const weights = reader.records("weights", (r) => {
    const [name, layout, dims, [first, count]] = [r.str(), r.str(), fixed(r.dims()), r.run("sources")];
    const rows = dims.length === 1 ? dims[0]! : product(dims.slice(0, -1));
    const own = sources.slice(first, first + count);
    require(rows === own.reduce((sum, s) => sum + s.rowCount, 0), `rows of weight ${name}`);
    return { name, layout, dims, sources: own };
  });
  const constants = reader.records("constants", (r) => {
    const [name, dims, , first] = [r.str(), fixed(r.dims()), r.u32(), r.u64()];
    return { name, dims, data: reader.floats(first, product(dims)) };
  });
  const inputs = reader.records("inputs", (r): PlanInput => {
    const [name, type, dims, elements, offset] = [r.str(), typeCode(r), named(r.dims()), r.u64(), r.u64()];
    require(offset % 64 === 0 && offset + 4 * elements <= header.inputBytes, `place of input ${name}`);
    require(product(dims.map(bound)) <= elements, `room of input ${name}`);
    return { name, type, dims, elements, offset };
  });
  const states = reader.records("states", (r): PlanInput => {
    const [name, type, dims, stateBytes] = [r.str(), typeCode(r), fixed(r.dims()), r.u64()];
    require(stateBytes === 4 * product(dims), `bytes of state ${name}`);
    return { name, type, dims, elements: product(dims), offset: 0 };
  });
  const groups = reader.records("groups", (r) => {
    const [kind, window, layers] = [format.groupKinds[r.index(2, "cache kind")]!, r.u32(), r.u32()];
    const [kvHeads, headDim, blockTokens] = [r.u32(), r.u32(), r.u32()];
    const [slots, blockTable] = [r.index(inputs.length, "slots"), r.index(states.length, "block table")];
    const [blockBytes, type] = [r.u64(), r.str()];
    require(layers > 0 && blockBytes > 0 && blockBytes % layers === 0, "bytes of a block");
    return { kind, window, layers, kvHeads, headDim, blockTokens, slots, blockTable, blockBytes, type };
  });

  const counts = { input: inputs, state: states, weight: weights, constant: constants, cache: groups };
  const operands = reader.records("operands", (r): PlanOperand => {
    const space = format.spaceCodes[r.index(format.spaceCodes.length, "space")]!;
    const index = r.index(space in counts ? counts[space as keyof typeof counts].length : 1, space);
    const [type, dims, offset, stride] = [typeCode(r), named(r.dims()), r.u64(), r.i64()];
    if (space === "arena") {
      const [rows, columns] = dims.map(bound);
      const bytes = format.elementBytes(type);
      require(dims.length === 2 && stride >= columns! && offset % bytes === 0, "operand in the arena");
      require(offset + bytes * (Math.max(rows! - 1, 0) * stride + columns!) <=
        header.arenaBytes, "operand outside of the arena");
    } else if (space === "cache") {
      require(offset % (groups[index]!.blockBytes / groups[index]!.layers) === 0 &&
        offset < groups[index]!.blockBytes, "cache layer");
    } else {
      require(offset === 0, `offset of an operand in ${space}`);
    }
    return { space, index, type, dims, offset, stride };
  });

  const kernels = reader.records("kernels", (r) => ({ signature: r.str(), tags: r.str(), backend: r.str() }));
  const parsed = kernels.map(({ signature }) => {
    try {
      return parseSignature(signature);
    } catch (error) {
      throw new InferxError("IX_PLAN", `damaged plan: ${(error as Error).message}`);
    }
  });
  const steps = reader.records("steps", (r): PlanStep => {
    const kernel = r.index(kernels.length, "kernel");
    const [[firstOperand, numOperands], [firstScalar, numScalars]] = [r.run("operands"), r.run("scalars")];
    require(r.u32() === 0, "reserved field of a step");
    const { operands: named, scalars, results } = parsed[kernel]!;
    require(numOperands ===
      named.length + results.filter((x) => !x.type.startsWith("kv_")).length, "operands of a step");
    require(numScalars === scalars.length, "scalars of a step");
    const values = scalars.map(({ type }, i) => {
      const record = reader.record("scalars", firstScalar + i);
      return type === "i32" ? record.i64() : record.f64();
    });
    return {
      name: r.str(),
      kernel,
      operands: operands.slice(firstOperand, firstOperand + numOperands),
      scalars: values,
    };
  });
  const read = reader.records("programs", (r) => {
    const [name, [first, count]] = [r.str(), r.run("steps")];
    return { name, steps: steps.slice(first, first + count) };
  });
  require(String(read.map(({ name }) => name)) === String(programs), "names of programs");
  const outputs = reader.records("outputs", (r) => {
    const [name, program, operand] = [
      r.str(),
      programs[r.index(programs.length, "program")]!,
      operands[r.index(operands.length, "operand")]!,
    ];
    require(operand.space === "arena" && operand.type !== "bf16", `place or type of output ${name}`);
    return { name, program, operand };
  });
  return { ...header, kernels, weights, constants, inputs, states, groups, programs: read, outputs };
}
