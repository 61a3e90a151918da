// What a device error does, on the GPU: eight requests run while a kernel of another device handle traps; all must reject with
// IX_DEVICE, a second model of the process too, a load before they are disposed must say what to do, and after that the model must
// load again in this process and give the same answers. Needs carry/gpu/trap.mjs (node bench/gpu/bundle.mjs --no-node).
//
//   node bench/gpu/faults.mjs [path, or a shape of shapes.mjs: tiny] [folder of the built package]
import assert from "node:assert/strict";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { trap } from "../../carry/gpu/trap.mjs";
import { modelNamed } from "./shapes.mjs";

const { Model } = await import(pathToFileURL(join(resolve(process.argv[3] ?? "dist"), "index.mjs")).href);
const from = modelNamed(process.argv[2] ?? "tiny");
const options = { device: "cuda", contextLength: 1024, cache: { bytes: 256e6 } };
const load = (more = {}) => Model.load(from, { ...options, ...more });
const codeOf = (promise) =>
  promise.then(
    () => "none",
    ({ code, message }) => `${code} ${message}`,
  );
const answers = (model) =>
  Promise.all(
    Array.from({ length: 8 }, (_, i) =>
      model.generate(
        Array.from({ length: 5 + 60 * i }, (_, k) => 1 + ((i * 31 + k * 7) % 1000)),
        { maxTokens: 24, ignoreEos: true, temperature: 0 },
      ),
    ),
  ).then((all) => all.map(({ tokens }) => tokens.map(({ id }) => id).join(" ")));

for (const thread of ["worker", "main"]) {
  const model = await load({ thread });
  const before = await answers(model);
  const other = await load({ cache: { bytes: 64e6 } });
  let started = 0;
  const running = Array.from({ length: 8 }, async (_, i) => {
    for await (const { tokens } of model.generate([i + 1, 2, 3], { maxTokens: 1000, ignoreEos: true })) {
      if (tokens.length > 0) started++;
    }
  }).map(codeOf);
  while (started < 50) await new Promise((done) => setTimeout(done, 1));
  assert.equal(await trap(), "IX_DEVICE");
  for (const code of await Promise.all(running)) assert.match(code, /^IX_DEVICE /);
  assert.match(await codeOf(other.generate([1, 2], { maxTokens: 4 })), /^IX_DEVICE /);
  assert.match(await codeOf(model.generate([1, 2], { maxTokens: 4 })), /^IX_DEVICE /);

  await Promise.all([model.dispose(), other.dispose()]);
  const again = await load({ thread });
  assert.deepEqual(await answers(again), before);
  await again.dispose();
  console.log(`${thread}: all requests were told, and the model loaded again gives the same answers`);
}

// A model that nobody has asked since holds the GPU in its broken state until it is disposed.
const idle = await load();
assert.equal(await trap(), "IX_DEVICE");
const refused = await codeOf(load());
assert.match(refused, /^IX_DEVICE .*dispose/);
assert.match(await codeOf(load({ device: "auto" })), /^IX_DEVICE .*dispose/);
await idle.dispose();
const last = await load();
await answers(last);
await last.dispose();
console.log(`while a model holds the broken GPU: ${refused}`);
