// What the model thought of: log-probabilities of its tokens, of a prompt's tokens, and seeds that repeat a random text.
import { Model } from "inferx";

const model = await Model.load(process.argv[2]);

// The three likeliest tokens at each place of a greedy answer.
const { tokens } = await model.chat("How much is 16 plus 4?", { temperature: 0, logprobs: 3, maxTokens: 6 });
for (const { topLogprobs } of tokens) {
  console.log(
    topLogprobs
      .map(({ text, logprob }) => `${JSON.stringify(text)} ${(100 * Math.exp(logprob)).toFixed(1)} %`)
      .join("   "),
  );
}

// How well the model expects a text: perplexity from the prompt's log-probabilities.
for (const text of ["Dear Opal,\n\nI hope that you are well.", "Opal that hope,\n\nwell Dear I are you."]) {
  const { promptLogprobs } = await model.generate(text, { promptLogprobs: 0, maxTokens: 1 });
  const known = promptLogprobs.map(({ logprob }) => logprob).filter((logprob) => logprob !== null);
  const mean = known.reduce((sum, logprob) => sum + logprob, 0) / known.length;
  console.log(`perplexity ${Math.exp(-mean).toFixed(1)}: ${JSON.stringify(text)}`);
}

// The same seed gives the same text, whatever else runs at the same time.
const story = (seed) => model.generate("Once upon a time", { temperature: 1.2, seed, maxTokens: 16 });
const [alone] = await Promise.all([story(42)]);
const [again, other] = await Promise.all([story(42), story(43)]);
console.log(`seed 42: ${JSON.stringify(alone.text)}\nseed 43: ${JSON.stringify(other.text)}`);
if (again.text !== alone.text) throw new Error("the same seed gave another text");

await model.dispose();
