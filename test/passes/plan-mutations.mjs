// Runs damaged variants of a plan on the addon, in a process of its own: native-plan.test.ts starts it and reads what came out.
//   node plan-mutations.mjs ADDON JOB.json      (job: plan, tensors, files, step; see the test)
// Writes the number of the mutation at hand to JOB.json.at before it is tried, so that a crash can be found again.
import { openSync, readFileSync, writeSync } from "node:fs";
import { createRequire } from "node:module";

const [, , addon, jobPath] = process.argv;
const native = createRequire(import.meta.url)(addon);
const job = JSON.parse(readFileSync(jobPath, "utf8"));
const original = new Uint8Array(Buffer.from(job.plan, "base64"));
const device = new native.Device("cpu", 0, 2, "");
const place = openSync(`${jobPath}.at`, "w");

const headerBytes = 72;
const numSections = 14;
const [strings, floats] = [0, 5];

/** FNV-1a 64 of all bytes behind the header, into the header. */
function seal(bytes) {
  let [low, high] = [0x84222325, 0xcbf29ce4];
  for (let i = headerBytes; i < bytes.length; i++) {
    low = (low ^ bytes[i]) >>> 0;
    const product = low * 0x1b3;
    high = (Math.imul(high, 0x1b3) + (low << 8) + Math.floor(product / 2 ** 32)) >>> 0;
    low = product >>> 0;
  }
  const view = new DataView(bytes.buffer);
  view.setUint32(32, low, true);
  view.setUint32(36, high, true);
  return bytes;
}

/** Every 32-bit word of header, directory and records, each with some other values. */
function* everyField() {
  const view = new DataView(original.buffer);
  const words = [];
  for (let at = 0; at < headerBytes + 16 * numSections; at += 4) if (at < 32 || at >= 40) words.push(at);
  for (let s = 0; s < numSections; s++) {
    if (s === strings || s === floats) continue;
    const at = headerBytes + 16 * s;
    const [start, bytes] = [view.getUint32(at, true), view.getUint32(at + 8, true) * view.getUint32(at + 12, true)];
    for (let i = 0; i < bytes; i += 4) words.push(start + i);
  }
  for (const at of words) {
    const old = view.getUint32(at, true);
    const values = [0, 1, 5, old + 1, old - 1, 2 * old, old ^ 0x80000000, 0xfffffffe];
    for (const value of new Set(values.map((v) => v >>> 0))) if (value !== old) yield [[at, value]];
  }
}

let seed = job.seed;
function random(below) {
  seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
  return Math.floor((seed / 2 ** 32) * below);
}

/** One to four random bytes anywhere. */
function* randomBytes(count) {
  for (let i = 0; i < count; i++) {
    yield Array.from({ length: 1 + random(4) }, () => [random(original.length), random(256)]);
  }
}

const codes = {};
let [tried, highestRss] = [0, 0];

/** The code that the plan is refused with, or "ran". */
async function outcome(plan) {
  let executor;
  try {
    const weights = new native.Weights(device, plan, job.tensors, job.files, `mutation ${process.pid} ${tried}`);
    await weights.ready();
    executor = new native.Executor(device, plan, weights, { blocks: job.blocks, checked: false });
    const inputs = new Uint8Array(Buffer.from(job.step.inputs, "base64")).buffer;
    const commands = Int32Array.from(job.step.commands);
    for (let k = 0; k < 2; k++) {
      const step = {
        dims: job.step.dims,
        inputs,
        commands,
        numCommands: commands.length,
        wanted: 2 ** job.outputs.length - 1,
      };
      executor.wait(
        executor.submit(step),
        job.outputs.map((elements) => new Float32Array(elements)),
      );
    }
    return "ran";
  } catch (error) {
    return error.code ?? `${error}`;
  } finally {
    executor?.close();
  }
}

async function attempt(bytes) {
  tried++;
  writeSync(place, `${tried}`.padEnd(12), 0);
  const code = await outcome(bytes);
  codes[code] = (codes[code] ?? 0) + 1;
  if (tried % 256 === 0) highestRss = Math.max(highestRss, process.memoryUsage.rss());
}

const only = Number(process.env.ONLY_MUTATION ?? 0); // to look at one of them again
function changed(words, width) {
  const bytes = original.slice();
  const view = new DataView(bytes.buffer);
  for (const [at, value] of words) width === 4 ? view.setUint32(at, value, true) : view.setUint8(at, value);
  return seal(bytes);
}

const unchanged = await outcome(seal(original.slice()));
for (const [words, width] of [
  [everyField(), 4],
  [randomBytes(job.randomRuns), 1],
]) {
  for (const change of words) {
    if (only && tried + 1 !== only) tried++;
    else {
      if (only) console.error(change);
      await attempt(changed(change, width));
    }
  }
}
console.log(JSON.stringify({ unchanged, tried, codes, highestRss }));
