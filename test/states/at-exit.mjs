// Child process of the matrix: starts the method named on the command line and leaves with code 7 while it is under way.
import { calls, inferx, needsGeneration, startGeneration } from "./calls.mjs";

const name = process.argv[2];
const model = await inferx.Model.load();
model.generate("A story: ", { maxTokens: 500, ignoreEos: true }).then(undefined, () => {});
const generation = needsGeneration(name) ? startGeneration(model) : undefined;
calls[name]({ model, generation }).catch(() => {});
setTimeout(() => process.exit(7), 5);
