// Runs an architecture's graph on a checkpoint with the reference interpreter; shared by the tests of lib/models.
import { tensorReader } from "../../lib/compile/reference.ts";
import { describeTensors } from "../../lib/compile/tensors.ts";
import { openCheckpoint } from "../../lib/formats/checkpoint.ts";
import { createBuilder } from "../../lib/ir/builder.ts";
import type { Graph } from "../../lib/ir/graph.ts";
import { createCaches, interpret } from "../../lib/ir/interpret.ts";
import type { Tensor } from "../../lib/ir/ops/op.ts";
import { type Architecture, findArchitecture, longRopeAfter } from "../../lib/models/index.ts";

export interface Loaded {
  graph: Graph;
  config: Record<string, unknown>;
  tensor: (name: string) => Float32Array;
}

/** The graph of the model in a folder or file; `config` replaces the folder's. */
export function load(path: string, config?: Record<string, unknown>, extra: readonly Architecture[] = []): Loaded {
  const checkpoint = openCheckpoint(path);
  const used = config ?? checkpoint.config;
  const g = createBuilder(describeTensors(checkpoint));
  findArchitecture(checkpoint.architecture, extra).build(g, used);
  return { graph: g.finish(), config: used, tensor: tensorReader(checkpoint) };
}

const i32 = (dims: number[], data: Iterable<number>): Tensor => ({ dims, data: Int32Array.from(data) });

/**
 * One sequence in steps of at most `stepTokens`, with its blocks in reverse order in the cache; the outputs at `rows` (all in the
 * last step's part must lie there) as one array per row.
 */
export function run(
  { graph, config, tensor }: Loaded,
  ids: readonly number[],
  rows: readonly number[],
  stepTokens = ids.length,
) {
  const blockTokens = 16;
  const blocks = Math.ceil(ids.length / blockTokens);
  const caches = createCaches(graph, blocks, blockTokens);
  const slot = (position: number) =>
    (blocks - 1 - Math.floor(position / blockTokens)) * blockTokens + (position % blockTokens);
  const ropeRow = Number(ids.length > longRopeAfter(config));
  const found = new Map<string, Map<number, Float32Array>>();
  for (let start = 0; start < ids.length; start += stepTokens) {
    const count = Math.min(stepTokens, ids.length - start);
    const positions = Array.from({ length: count }, (_, i) => start + i);
    const wanted = rows.filter((row) => row >= start && row < start + count);
    const inputs = new Map<string, Tensor>([
      ["tokens", i32([count], ids.slice(start, start + count))],
      ["positions", i32([count], positions)],
      [
        "rope_row",
        i32(
          [count],
          positions.map(() => ropeRow),
        ),
      ],
      [
        "row_index",
        i32(
          [wanted.length],
          wanted.map((row) => row - start),
        ),
      ],
      ["seq_start", i32([2], [0, count])],
      ["seq_context", i32([1], [start + count])],
      ["seq_row", i32([1], [0])],
    ]);
    graph.groups.forEach((_, group) => {
      inputs.set(`slots.${group}`, i32([count], positions.map(slot)));
      inputs.set(
        `block_table.${group}`,
        i32(
          [1, blocks],
          Array.from({ length: blocks }, (_, b) => blocks - 1 - b),
        ),
      );
    });
    for (const [name, { dims, data }] of interpret(graph, { tensor, inputs, caches })) {
      const byRow = found.get(name) ?? new Map<number, Float32Array>();
      found.set(name, byRow);
      const [, columns] = dims as [number, number];
      for (const [i, row] of wanted.entries()) {
        byRow.set(row, (data as Float32Array).slice(i * columns, (i + 1) * columns));
      }
    }
  }
  return (name: string, row: number): Float32Array => found.get(name)!.get(row)!;
}
