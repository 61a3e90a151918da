// A conversation that streams, and an answer that is stopped half-way.
import { InferxError, Model } from "inferx";

const model = await Model.load(process.argv[2]);
const messages = [{ role: "user", content: "I live in Dublin." }];

async function answer(options) {
  let text = "";
  for await (const chunk of model.chat(messages, { temperature: 0, ...options })) {
    process.stdout.write(chunk.text); // whole characters, never half of one
    text += chunk.text;
  }
  process.stdout.write("\n");
  messages.push({ role: "assistant", content: text });
}

await answer();
messages.push({ role: "user", content: "In which city do I live?" });
await answer();

// Any AbortSignal stops a generation within one step.
const stop = new AbortController();
messages.push({ role: "user", content: "Tell me a story about a fox and a lantern." });
try {
  let chunks = 0;
  for await (const { text } of model.chat(messages, { signal: stop.signal })) {
    process.stdout.write(text);
    if (++chunks === 10) stop.abort();
  }
} catch (error) {
  if (!InferxError.is(error) || error.code !== "IX_ABORTED") throw error;
  console.log(" … stopped");
}
await model.dispose();
