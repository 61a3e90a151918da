// Loading weights to the GPU, in GB/s: beside the rate at which as many threads only read the file, and the rate of page-locked memory to
// the GPU (copy_rate.cu, built with nvcc where there is one). A load can be no faster than the slower of the two.
//
//   node bench/gpu/load.mjs [folder to write the file to: /tmp] [layers of the 8B shape: 8] [folder of the built package]

import { execFileSync } from "node:child_process";
import { closeSync, mkdirSync, openSync, rmSync, statSync, writeFileSync, writeSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { Worker } from "node:worker_threads";
import { shapes } from "./shapes.mjs";

const [where = "/tmp", layers = "8", dist = "dist"] = process.argv.slice(2);
const { Model } = await import(pathToFileURL(join(resolve(dist), "index.mjs")).href);
const seconds = (since) => (performance.now() - since) / 1000;
const rate = (bytes, time) => `${(bytes / 1e9 / time).toFixed(1)} GB/s`;

/** A folder with the shape's tensors, of a few megabytes of noise repeated. */
function writeModel(folder, shape) {
  const { hidden_size: H, intermediate_size: F, vocab_size: V, num_key_value_heads, head_dim } = shape;
  const kv = num_key_value_heads * head_dim;
  const tensors = [
    ["model.embed_tokens", V, H],
    ["lm_head", V, H],
    ["model.norm", H],
  ];
  for (let l = 0; l < shape.num_hidden_layers; l++) {
    const parts = { q_proj: [H, H], k_proj: [kv, H], v_proj: [kv, H], o_proj: [H, H] };
    for (const [name, dims] of Object.entries(parts)) tensors.push([`model.layers.${l}.self_attn.${name}`, ...dims]);
    for (const name of ["gate_proj", "up_proj"]) tensors.push([`model.layers.${l}.mlp.${name}`, F, H]);
    tensors.push([`model.layers.${l}.mlp.down_proj`, H, F]);
    for (const name of ["input_layernorm", "post_attention_layernorm"]) tensors.push([`model.layers.${l}.${name}`, H]);
  }
  const header = {};
  let bytes = 0;
  for (const [name, ...dims] of tensors) {
    const size = dims.reduce((a, b) => a * b) * 2;
    header[`${name}.weight`] = { dtype: "BF16", shape: dims, data_offsets: [bytes, bytes + size] };
    bytes += size;
  }
  const text = JSON.stringify(header).padEnd(Math.ceil(JSON.stringify(header).length / 8) * 8);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  const noise = Buffer.from(new Uint16Array(8 << 20).map((_, i) => 0x3c00 | ((i * 40503) & 0x80ff)).buffer);
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "config.json"), JSON.stringify(shape));
  const file = openSync(join(folder, "model.safetensors"), "w");
  writeSync(file, length);
  writeSync(file, text);
  for (let left = bytes; left > 0; left -= noise.length) writeSync(file, noise, 0, Math.min(left, noise.length));
  closeSync(file);
}

const reader = `
  const { closeSync, openSync, readSync } = require("node:fs");
  const { parentPort, workerData: { path, size, piece, next } } = require("node:worker_threads");
  const buffer = Buffer.alloc(piece);
  const file = openSync(path);
  parentPort.once("message", () => {
    for (let i = Atomics.add(next, 0, 1); i * piece < size; i = Atomics.add(next, 0, 1)) readSync(file, buffer, 0, piece, i * piece);
    closeSync(file);
    parentPort.postMessage("done");
  });
  parentPort.postMessage("ready");
`;
/** Seconds in which as many threads as there are processors read the file in pieces of 2 MB, each into a buffer of its own. */
async function readOnly(path) {
  const workerData = {
    path,
    size: statSync(path).size,
    piece: 2 << 20,
    next: new Int32Array(new SharedArrayBuffer(4)),
  };
  const threads = Array.from({ length: availableParallelism() }, () => new Worker(reader, { eval: true, workerData }));
  const all = () => Promise.all(threads.map((thread) => new Promise((done) => thread.once("message", done))));
  await all();
  const start = performance.now();
  const read = all();
  for (const thread of threads) thread.postMessage("go");
  await read;
  return seconds(start);
}

const options = { device: "cuda", numerics: "fast", contextLength: 1024, cache: { bytes: 256e6 } };
async function timed(from, check = () => {}) {
  const start = performance.now();
  const model = await Model.load(from, options);
  const time = seconds(start);
  await check(model, time);
  await model.dispose();
  return time;
}

const folder = join(where, "inferx-load");
writeModel(folder, { ...shapes["8b"], num_hidden_layers: Number(layers) });
const path = join(folder, "model.safetensors");
const { size } = statSync(path);
const dropFromCache = () => {
  execFileSync("sync", [path]);
  execFileSync("dd", [`if=${path}`, "iflag=nocache", "count=0"], { stdio: "ignore" });
};
try {
  await timed({ shape: shapes.tiny }); // the GPU is started, the library loaded
  console.log(`${(size / 1e9).toFixed(2)} GB, ${availableParallelism()} processors`);
  /** Loads once, and once more beside it, which shares the weights: the difference is what the weights took. */
  const load = async (name, from = folder) => {
    await timed(from, async (model, first) => {
      const second = await timed(from);
      const { weightBytes } = model.info;
      console.log(
        `load ${name}: ${rate(weightBytes, first - second)} (${first.toFixed(2)} s, all but weights ${second.toFixed(2)} s)`,
      );
    });
  };
  for (const name of ["from memory", "from disk"]) {
    for (let run = 0; run < 2; run++) {
      const before = name === "from disk" ? dropFromCache : () => {};
      before();
      console.log(`only read ${name}: ${rate(size, await readOnly(path))}`);
      before();
      await load(name);
    }
  }
  await load("random weights", { shape: { ...shapes["8b"], num_hidden_layers: Number(layers) }, seed: 1 });
  try {
    const program = join(tmpdir(), "inferx-copy-rate");
    const source = join(import.meta.dirname, "copy_rate.cu");
    execFileSync("nvcc", [
      "-std=c++20",
      "-O2",
      `-I${join(import.meta.dirname, "../../csrc")}`,
      "-arch=native",
      source,
      "-o",
      program,
    ]);
    console.log(`page-locked memory to the GPU: ${execFileSync(program, { encoding: "utf8" }).trim()} GB/s`);
  } catch (error) {
    console.log(`page-locked memory to the GPU: not measured (${String(error.message).split("\n")[0]})`);
  }
} finally {
  rmSync(folder, { recursive: true });
}
