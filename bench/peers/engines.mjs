// The engines behind one interface: `open(file)` gives `{threads, session}`, and a session streams the tokens of prompts.
// A session has a number of sequences that run together. Each engine at its best settings; what they are is said here.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const contextTokens = 1024;
const here = fileURLToPath(new URL(".", import.meta.url));

/** Folder of the peers' packages; undefined when they are not installed. */
export function peersFolder() {
  return [process.env.INFERX_PEERS, join(here, "node_modules")].find(
    (folder) => folder && existsSync(join(folder, "node-llama-cpp/package.json")),
  );
}

const versionIn = (folder) => JSON.parse(readFileSync(join(folder, "package.json"), "utf8")).version;

export function versions() {
  const folder = peersFolder();
  const peer = folder && { "node-llama-cpp": versionIn(join(folder, "node-llama-cpp")) };
  return { inferx: versionIn(join(here, "../..")), ...peer };
}

/** Its own choice of threads; arithmetic as the peer's: activations of 8 bits for blocks, bf16 for bf16 weights. */
async function inferx(file) {
  const { Model } = await import("../../dist/index.mjs");
  const model = await Model.load(file, {
    device: "cpu",
    numerics: "fast",
    contextLength: contextTokens,
    cache: { prefixCache: false },
  });
  const session = () => ({
    async *stream(prompt, maxTokens) {
      for await (const { tokens } of model.generate(prompt, { maxTokens, ignoreEos: true, temperature: 0 }))
        for (const { id } of tokens) yield id;
    },
    close() {},
  });
  return { threads: model.info.device.threads, session, close: () => model.dispose() };
}

/** Flash attention, batches of 512, a context per number of sequences and threads. */
async function nodeLlamaCpp(file) {
  const entry = pathToFileURL(join(peersFolder(), "node-llama-cpp/dist/index.js"));
  const { getLlama, LlamaLogLevel } = await import(entry);
  // maxThreads 0: a context takes as many as it is told to.
  const llama = await getLlama({ gpu: false, build: "never", maxThreads: 0, logLevel: LlamaLogLevel.error });
  const model = await llama.loadModel({ modelPath: file });
  const session = async (sequences, threads) => {
    const context = await model.createContext({
      contextSize: contextTokens,
      sequences,
      threads,
      batchSize: 512,
      flashAttention: true,
    });
    const idle = Array.from({ length: sequences }, () => context.getSequence());
    return {
      async *stream(prompt, maxTokens) {
        const sequence = idle.pop();
        let numTokens = 0;
        try {
          for await (const id of sequence.evaluate(prompt, { temperature: 0, yieldEogToken: true })) {
            yield id;
            if (++numTokens === maxTokens) break;
          }
        } finally {
          await sequence.clearHistory();
          idle.push(sequence);
        }
      },
      close: () => context.dispose(),
    };
  };
  return { session, close: () => llama.dispose() };
}

export const engines = { inferx, "node-llama-cpp": nodeLlamaCpp };
