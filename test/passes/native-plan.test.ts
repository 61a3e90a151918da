// The verifier of csrc/core: a sound plan runs, every damaged one is refused with a typed error or runs without harm. The damaged
// plans are tried in a process of their own, where a crash is seen.
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { addonPath } from "../../lib/native/binding.ts";
import { decodePlan } from "../../lib/passes/decode.ts";
import { lower } from "../../lib/passes/index.ts";
import { addon } from "../device.ts";
import { limits, type TinyOptions, tinyModel } from "./tiny-model.ts";

const binding = addon();
const title = binding ? "damaged plans" : "damaged plans (SKIPPED: the addon is not built)";

let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "inferx-plan-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A tiny model's plan, its checkpoint in a file, and a step of two sequences with new tokens 2 and 1. */
function job(name: string, options: TinyOptions, cacheType: "kv_f32" | "kv_bf16") {
  const { graph, tensor } = tinyModel(options);
  const device = new binding!.Device("cpu", 0, 2, "");
  const { plan } = lower(graph, { kernels: device.kernels(), limits, topLogprobs: 3, cacheType });
  const decoded = decodePlan(plan);
  const file = join(folder, `${name}.bin`);
  const names = new Set(decoded.weights.flatMap(({ sources }) => sources.map((s) => s.tensor)).filter(Boolean));
  const shapes = new Map(
    graph.nodes
      .flatMap(({ operands }) => operands)
      .flatMap((v) => (v?.kind === "weight" ? v.sources.map((s) => [s.tensor, v] as const) : [])),
  );
  const parts: Uint8Array[] = [];
  let offset = 0;
  const tensors = [...names].map((tensorName) => {
    const data = tensor(tensorName);
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    parts.push(bytes);
    offset += bytes.length;
    const shape = shapes.get(tensorName)!.shape as number[];
    const columns = shape.length === 1 ? 1 : shape.at(-1)!;
    const dims = columns === 1 ? [data.length] : [data.length / columns, columns];
    return { name: tensorName, dtype: "f32", file: 0, offset: offset - bytes.length, bytes: bytes.length, dims };
  });
  writeFileSync(file, Buffer.concat(parts));

  const inputs = new ArrayBuffer(decoded.inputBytes);
  const values: Record<string, number[]> = {
    tokens: [3, -1, 7],
    positions: [0, 1, 0],
    row_index: [1, 2],
    seq_start: [0, 2, 3],
    seq_context: [2, 1],
    seq_row: [0, 1],
    sample_row: [0, 1],
    row_state: [0, -1],
    target: [-1, 5],
    num_logprobs: [2, -1],
    mask_row: [-1, -1],
  };
  for (const [g] of decoded.groups.entries()) values[`slots.${g}`] = [0, 1, limits.blockTokens];
  for (const { name: input, offset: at } of decoded.inputs) {
    if (values[input]) new Int32Array(inputs, at).set(values[input]);
    if (["temperature", "top_p", "repetition"].includes(input)) new Float32Array(inputs, at).set([0.8, 0.9]);
  }
  const bits = new Int32Array(Float32Array.of(0.5).buffer)[0]!;
  const tables = decoded.groups.flatMap((_, g) => [1, g, 0, 0, 0, 1, g, 1, 0, 1]);
  const commands = [...tables, 3, 0, 4, 0, 2, 3, 9, 5, 0, 1, 9, 6, 0, 1, 4, bits];
  return {
    plan: Buffer.from(plan).toString("base64"),
    tensors,
    files: [file],
    blocks: decoded.groups.map(() => 4),
    outputs: decoded.outputs.map(({ operand }) => (operand.dims[1] as number) * 8),
    step: { dims: [3, 2, 2], commands, inputs: Buffer.from(inputs).toString("base64") },
    seed: 11,
    randomRuns: Number(process.env.INFERX_RANDOM_RUNS ?? 2) * 1000,
  };
}

interface Outcome {
  unchanged: string;
  tried: number;
  codes: Record<string, number>;
  highestRss: number;
}

/** Runs in a process of its own; rejects when that does not end well. */
function mutate(name: string, work: ReturnType<typeof job>): Promise<Outcome> {
  const path = join(folder, `${name}.json`);
  writeFileSync(path, JSON.stringify(work));
  const child = spawn(process.execPath, [join(import.meta.dirname, "plan-mutations.mjs"), addonPath(), path]);
  let [out, err] = ["", ""];
  child.stdout.on("data", (data) => {
    out += data;
  });
  child.stderr.on("data", (data) => {
    err += data;
  });
  const timer = setTimeout(() => child.kill("SIGKILL"), 110_000);
  return new Promise((resolve, reject) => {
    child.on("close", (code, signal) => {
      clearTimeout(timer);
      if (code === 0) return resolve(JSON.parse(out));
      reject(new Error(`mutation ${readFileSync(`${path}.at`)}: exit code ${code}, signal ${signal}\n${err}`));
    });
  });
}

const typed = ["IX_PLAN", "IX_NO_KERNEL", "IX_MODEL_FORMAT", "IX_OUT_OF_MEMORY"];
const models: [string, TinyOptions, "kv_f32" | "kv_bf16"][] = [
  ["dense", { qkNorm: true, bias: true, tied: true }, "kv_f32"],
  ["window-experts", { window: true, experts: true, ropeHeads: true }, "kv_bf16"],
];

describe.skipIf(!binding)(title, () => {
  it.each(models)(
    "%s: refused with a type, or harmless",
    async (name, options, cacheType) => {
      const { unchanged, tried, codes, highestRss } = await mutate(name, job(name, options, cacheType));
      if (process.env.SHOW) console.log(name, tried, codes, highestRss);
      expect(unchanged).toBe("ran");
      // IX_UNSUPPORTED_FORMAT: sources that a damaged flag asks to convert. IX_INVALID_ARGUMENT: the step does not fit the plan.
      const known = [...typed, "IX_UNSUPPORTED_FORMAT", "IX_INVALID_ARGUMENT", "ran"];
      expect(Object.keys(codes).filter((code) => !known.includes(code))).toEqual([]);
      expect(tried).toBeGreaterThan(5000);
      expect(codes.IX_PLAN).toBeGreaterThan(tried / 2);
      expect(highestRss).toBeLessThan(1e9);
    },
    120_000,
  );
});
