// Weights as lists of checkpoint rows: making, joining, slicing and (for the interpreter) assembling them from float tensors.
import { InferxError } from "../base/errors.ts";
import { type RowSource, type WeightValue, weightColumns, weightRows } from "./graph.ts";

/** The dtype in which derived weights are kept: the common one of their parts, else f32. */
export function commonDtype(weights: readonly WeightValue[]): string {
  const dtypes = new Set(weights.map((w) => w.dtype));
  return dtypes.size === 1 ? weights[0]!.dtype : "f32";
}

function derive(name: string, dtype: string, shape: readonly number[], sources: readonly RowSource[]): WeightValue {
  return { kind: "weight", name, dtype, shape, sources: mergeSources(sources) };
}

/** Joins neighbours that continue each other, so that equal weights have equal lists. */
function mergeSources(sources: readonly RowSource[]): RowSource[] {
  const merged: RowSource[] = [];
  for (const source of sources) {
    const last = merged.at(-1);
    const continues =
      last !== undefined &&
      last.tensor === source.tensor &&
      (source.tensor === "" || last.rowStart + last.rowCount === source.rowStart) &&
      last.ropeHeads === source.ropeHeads &&
      last.transposed === source.transposed &&
      last.addOne === source.addOne &&
      last.scale === source.scale;
    if (continues) merged[merged.length - 1] = { ...last, rowCount: last.rowCount + source.rowCount };
    else merged.push(source);
  }
  return merged;
}

/** Matrices [Ni, K] -> [sum Ni, K], or vectors -> a longer vector. */
export function concatRows(weights: readonly WeightValue[], name: string): WeightValue {
  const first = weights[0];
  if (
    !first ||
    weights.some((w) => w.shape.length !== first.shape.length || weightColumns(w.shape) !== weightColumns(first.shape))
  ) {
    throw new InferxError(
      "IX_MODEL_CONFIG",
      `weights of ${name} cannot be joined: ${weights.map((w) => `${w.name} [${w.shape}]`).join(", ")}`,
    );
  }
  const rows = weights.reduce((sum, w) => sum + weightRows(w.shape), 0);
  return derive(
    name,
    commonDtype(weights),
    [rows, ...first.shape.slice(1)],
    weights.flatMap((w) => w.sources),
  );
}

/** Matrices of one shape [N, K] -> [E, N, K]. */
export function stack(weights: readonly WeightValue[], name: string): WeightValue {
  const first = weights[0];
  if (first?.shape.length !== 2 || weights.some((w) => String(w.shape) !== String(first.shape))) {
    throw new InferxError(
      "IX_MODEL_CONFIG",
      `weights of ${name} cannot be stacked: ${weights.map((w) => `${w.name} [${w.shape}]`).join(", ")}`,
    );
  }
  return derive(
    name,
    commonDtype(weights),
    [weights.length, ...first.shape],
    weights.flatMap((w) => w.sources),
  );
}

/** `count` rows from `start`; of a stack of matrices the rows are counted through all of them and the result is a matrix. */
export function sliceRows(weight: WeightValue, start: number, count: number): WeightValue {
  const rows = weightRows(weight.shape);
  if (start < 0 || count <= 0 || start + count > rows) {
    throw new InferxError("IX_MODEL_CONFIG", `rows ${start} + ${count} of ${weight.name}, which has ${rows}`);
  }
  const sources: RowSource[] = [];
  let offset = 0;
  for (const source of weight.sources) {
    const from = Math.max(start, offset);
    const to = Math.min(start + count, offset + source.rowCount);
    if (from < to) sources.push({ ...source, rowStart: source.rowStart + from - offset, rowCount: to - from });
    offset += source.rowCount;
  }
  const shape = weight.shape.length === 1 ? [count] : [count, weightColumns(weight.shape)];
  return derive(`${weight.name}[${start}:${start + count}]`, weight.dtype, shape, sources);
}

/** The weight with every row source changed: scaled, 1 added. */
export function mapSources(weight: WeightValue, change: (source: RowSource) => RowSource): WeightValue {
  return derive(weight.name, weight.dtype, weight.shape, weight.sources.map(change));
}

/** Zeros, where one part of a concatenated bias is missing. */
export function zeroRows(shape: readonly number[], dtype: string): WeightValue {
  const source = {
    tensor: "",
    rowStart: 0,
    rowCount: weightRows(shape),
    ropeHeads: 0,
    transposed: false,
    addOne: false,
    scale: 1,
  };
  return derive("zeros", dtype, shape, [source]);
}

/** Two weights with the same key hold the same numbers. */
export function weightKey(weight: WeightValue): string {
  return JSON.stringify([weight.shape, weight.sources]);
}

/**
 * The weight's numbers, row by row, from the checkpoint's tensors as float32: what the load program does, without packing.
 * @throws IX_MODEL_FORMAT when a tensor lacks rows.
 */
export function assembleWeight(weight: WeightValue, tensor: (name: string) => Float32Array): Float32Array {
  const columns = weightColumns(weight.shape);
  const out = new Float32Array(weightRows(weight.shape) * columns);
  let at = 0;
  for (const source of weight.sources) {
    if (source.tensor !== "") {
      const data = tensor(source.tensor);
      const rows = data.length / columns;
      if (!Number.isInteger(rows) || source.rowStart + source.rowCount > rows) {
        throw new InferxError(
          "IX_MODEL_FORMAT",
          `${source.tensor} has ${data.length} values, not rows of ${columns} up to ${source.rowStart + source.rowCount}`,
        );
      }
      for (let i = 0; i < source.rowCount; i++) {
        const row = storedRow(source, source.rowStart + i, rows);
        for (let c = 0; c < columns; c++) {
          const value = data[source.transposed ? c * rows + row : row * columns + c]!;
          out[at + i * columns + c] = value * source.scale + (source.addOne ? 1 : 0);
        }
      }
    }
    at += source.rowCount * columns;
  }
  return out;
}

/** Where row `row` of the tensor as it should be lies in the tensor as it is. */
function storedRow(source: RowSource, row: number, rows: number): number {
  if (source.ropeHeads === 0) return row;
  const width = rows / source.ropeHeads;
  const within = row % width;
  const half = width / 2;
  return row - within + 2 * (within % half) + Math.floor(within / half);
}
