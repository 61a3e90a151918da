// Worker thread of the matrix: calls the method named in workerData on a model of its own and posts the outcome.
import { parentPort, workerData } from "node:worker_threads";
import { calls, inferx, needsGeneration, startGeneration } from "./calls.mjs";

const model = await inferx.Model.load();
try {
  const generation = needsGeneration(workerData) ? startGeneration(model) : undefined;
  const value = await calls[workerData]({ model, generation });
  await model.dispose();
  parentPort.postMessage({ value });
} catch (error) {
  parentPort.postMessage({ error: { code: error.code, message: error.message } });
}
