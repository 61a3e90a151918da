// The engine's worker thread: an entry of its own in the build. It blocks while a step runs; messages are drained between steps.
import { parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { toInferxError } from "../base/errors.ts";
import { invariant } from "../base/invariant.ts";
import { native } from "../native/binding.ts";
import { Engine } from "./engine.ts";
import { type EngineConfig, openParts } from "./parts.ts";
import type { FromEngine, ToEngine } from "./protocol.ts";

invariant(parentPort, "worker.ts runs in a worker thread");
const port = parentPort;
const post = (message: FromEngine) => port.postMessage(message);

let engine: Engine | undefined;
let cancelLoading = () => {};

port.on("message", (message: ToEngine) => {
  if (!engine) {
    // Nothing but the order to stop comes before the engine is ready.
    cancelLoading();
    return;
  }
  for (let next: ToEngine | undefined = message; next; next = receiveMessageOnPort(port)?.message)
    receive(engine, next);
  while (engine.turn()) {
    for (let next = receiveMessageOnPort(port); next; next = receiveMessageOnPort(port)) receive(engine, next.message);
  }
});

function receive(target: Engine, message: ToEngine): void {
  target.receive(message);
  if (message.type === "dispose") port.close();
}

async function open(): Promise<void> {
  try {
    const parts = await openParts(
      native(),
      workerData as EngineConfig,
      (loadedBytes, totalBytes) => post({ type: "progress", loadedBytes, totalBytes }),
      (cancel) => {
        cancelLoading = cancel;
      },
    );
    engine = new Engine(parts, post);
    post({ type: "ready", memoryBytes: parts.executor.memoryBytes, device: parts.device, threads: parts.threads });
  } catch (error) {
    post({ type: "refused", error: toInferxError(error).toJSON() });
    port.close();
  }
}

void open();
