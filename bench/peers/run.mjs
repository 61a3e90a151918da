// One run of one engine, in a process of its own: measures what it is asked for and prints the figures as its last line.
// Not started by hand: cpu.mjs does.
import { spawn } from "node:child_process";
import { engines } from "./engines.mjs";

/** A prompt before decoding: short, so that weights are nearly all that a step reads. */
const shortTokens = 16;

/** Token ids that the smallest vocabulary has too, another list for each index. */
const promptOf = (numTokens, index) =>
  Array.from({ length: numTokens }, (_, i) => 300 + ((i * 7919 + index * 104_729) % 3000));

/** Ids of the tokens, and when the call and each token came, in milliseconds. */
async function timed(session, prompt, maxTokens) {
  const ids = [];
  const at = [];
  const start = performance.now();
  for await (const id of session.stream(prompt, maxTokens)) {
    ids.push(id);
    at.push(performance.now());
  }
  if (ids.length !== maxTokens) throw new Error(`${ids.length} tokens came, ${maxTokens} were wanted`);
  return { ids, at, start };
}

/** The prompt's tokens a second until the first new token. */
async function prompt512(session, { warmTokens, promptTokens }) {
  await timed(session, promptOf(warmTokens, 1), 1);
  const { at, start } = await timed(session, promptOf(promptTokens, 0), 1);
  return { tokensPerSecond: (promptTokens / (at[0] - start)) * 1000 };
}

async function decode1(session, { oneTokens }) {
  await timed(session, promptOf(shortTokens, 1), 4);
  const { ids, at } = await timed(session, promptOf(shortTokens, 0), oneTokens + 1);
  const gaps = at.slice(1).map((time, i) => time - at[i]);
  return { tokensPerSecond: (oneTokens / (at.at(-1) - at[0])) * 1000, ids, gaps };
}

/** The same beside a process that keeps one core busy. */
async function decode1Busy(session, sizes) {
  const busy = spawn(process.execPath, ["-e", "for (const end = Date.now() + 120000; Date.now() < end; );"]);
  try {
    return await decode1(session, sizes);
  } finally {
    busy.kill("SIGKILL");
  }
}

/**
 * While all eight decode, until the one that is ahead has `eightTokens`. They go on until then, so that it does not matter
 * how an engine spreads the eight prompts over its steps.
 */
async function together(session, numTokens, firstPrompt) {
  const at = Array.from({ length: 8 }, () => []);
  let from = 0;
  let ended = false;
  const one = async (times, i) => {
    for await (const _ of session.stream(promptOf(shortTokens, firstPrompt + i), 800)) {
      if (ended) break;
      times.push(performance.now());
      from ||= at.every((list) => list.length > 0) ? performance.now() : 0;
      ended = from > 0 && times.filter((time) => time > from).length === numTokens;
    }
  };
  await Promise.all(at.map(one));
  const rates = at.map((times) => {
    const within = times.filter((time) => time > from);
    return within.length < 2 ? 0 : (within.length - 1) / (within.at(-1) - within[0]); // it got no turn
  });
  return rates.reduce((sum, rate) => sum + rate, 0);
}

async function decode8(session, { eightTokens }) {
  await together(session, 2, 8);
  return { tokensPerSecond: 1000 * (await together(session, eightTokens, 0)) };
}

const metrics = { prompt512, decode1, decode8, decode1Busy };

const { engine, file, sizes, cells } = JSON.parse(process.argv[2]);
const opened = await engines[engine](file);
const figures = [];
for (const { metric, threads } of cells) {
  const session = await opened.session(metric === "decode8" ? 8 : 1, threads);
  figures.push({ metric, threads: opened.threads ?? threads, ...(await metrics[metric](session, sizes)) });
  await session.close();
}
await opened.close();
process.stdout.write(`\n${JSON.stringify(figures)}\n`);
