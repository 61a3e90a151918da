// Load a model, ask it something, read the answer and what it took.
import { Model } from "inferx";

// A folder with config.json, a .gguf file, or nothing: the bundled demo model.
const model = await Model.load(process.argv[2]);

const answer = await model.chat("How much is 16 plus 4?", { temperature: 0, maxTokens: 64 });
console.log(answer.text);

const { promptTokens, completionTokens } = answer.usage;
console.log(`${promptTokens} tokens in, ${completionTokens} out, finished by "${answer.finishReason}"`);
console.log(
  `first token after ${answer.timings.firstTokenMs.toFixed(0)} ms, then ${answer.timings.tokensPerSecond.toFixed(0)} tokens/s`,
);

// Without the chat template: the text is continued as it stands.
const { text } = await model.generate("Once upon a time", { temperature: 0, maxTokens: 24 });
console.log(`Once upon a time${text}`);

// Or `await using model = …`, where the language has it.
await model.dispose();
