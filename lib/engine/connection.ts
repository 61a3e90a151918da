// How a client reaches its engine: in a worker thread, or in its own thread with the same messages.
import { join } from "node:path";
import { Worker } from "node:worker_threads";
import { InferxError, toInferxError } from "../base/errors.ts";
import { packageRoot } from "../base/package-root.ts";
import { native } from "../native/binding.ts";
import { Engine } from "./engine.ts";
import { type EngineConfig, openParts } from "./parts.ts";
import type { FromEngine, ToEngine } from "./protocol.ts";

export interface Connection {
  post(message: ToEngine): void;
  /** Whether the engine keeps the process alive: yes while anything is open. */
  keepAlive(wanted: boolean): void;
}

/** `onEnd`: the engine's thread is gone, expected or not. */
export type Connect = (
  config: EngineConfig,
  onMessage: (message: FromEngine) => void,
  onEnd: (error: InferxError) => void,
) => Connection;

/** The engine in a worker thread; the build's worker entry, as a `.ts` worker does not load on Node 20. */
export const connectWorker: Connect = (config, onMessage, onEnd) => {
  const worker = new Worker(join(packageRoot(), "dist", "worker.mjs"), {
    execArgv: [],
    workerData: config,
    name: "inferx",
  });
  worker.on("message", onMessage);
  worker.on("error", (error) =>
    onEnd(new InferxError("IX_WORKER_DIED", `the engine's thread failed: ${error.message}`, {}, { cause: error })),
  );
  worker.on("exit", (code) => onEnd(new InferxError("IX_WORKER_DIED", `the engine's thread ended with code ${code}`)));
  return {
    post: (message) => worker.postMessage(message),
    keepAlive: (wanted) => (wanted ? worker.ref() : worker.unref()),
  };
};

/** The engine in this thread: a step blocks it, and between steps it yields, so that timers and AbortSignals fire. */
export const connectLocal: Connect = (config, onMessage, onEnd) => {
  const inbox: ToEngine[] = [];
  let engine: Engine | undefined;
  let cancelLoading = () => {};
  let pumping = false;
  const pump = () => {
    for (let message = inbox.shift(); message; message = inbox.shift()) {
      engine!.receive(message);
      if (message.type === "dispose") return onEnd(new InferxError("IX_DISPOSED", "the model was disposed"));
    }
    pumping = engine!.turn();
    if (pumping) setImmediate(pump);
  };
  const open = async () => {
    try {
      const parts = await openParts(
        native(),
        config,
        (loadedBytes, totalBytes) => onMessage({ type: "progress", loadedBytes, totalBytes }),
        (cancel) => {
          cancelLoading = cancel;
        },
      );
      engine = new Engine(parts, onMessage);
      onMessage({
        type: "ready",
        memoryBytes: parts.executor.memoryBytes,
        device: parts.device,
        threads: parts.threads,
      });
    } catch (error) {
      onMessage({ type: "refused", error: toInferxError(error).toJSON() });
    }
  };
  void open();
  return {
    post(message) {
      if (!engine) return cancelLoading();
      inbox.push(message);
      if (pumping) return;
      pumping = true;
      setImmediate(pump);
    },
    keepAlive: () => {}, // a pending setImmediate does that by itself
  };
};
