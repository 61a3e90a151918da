// `inferx run`: one prompt, one answer, streamed to stdout (or one JSON object).
import { text } from "node:stream/consumers";
import { type Command, InvalidArgumentError } from "commander";
import type { ChatMessage, GenerationResult, Model } from "../index.ts";
import { exitCodes } from "./exit-codes.ts";
import {
  addGenerateOptions,
  addModelOptions,
  type GenerateFlags,
  generateOptions,
  loadModel,
  type ModelFlags,
} from "./options.ts";
import { remark } from "./terminal.ts";

interface RunFlags extends ModelFlags, GenerateFlags {
  raw?: boolean;
  system?: string;
  json?: boolean;
}

export function addRunCommand(program: Command): void {
  const command = program
    .command("run")
    .description("answer one prompt")
    .argument("<prompt>", 'the prompt; "-" reads it from stdin');
  addGenerateOptions(addModelOptions(command))
    .option("--raw", "continue the text as it stands, without the chat template")
    .option("--system <text>", "system message (with the chat template)")
    .option("--logprobs <n>", "log-probabilities of each token and n alternatives (with --json)", (value) => {
      if (!/^\d+$/.test(value)) throw new InvalidArgumentError("It is not a whole number.");
      return Number(value);
    })
    .option("--json", "print one JSON object when the answer is complete")
    .action(run);
}

async function run(argument: string, flags: RunFlags): Promise<void> {
  const prompt = argument === "-" ? await text(process.stdin) : argument;
  const stop = new AbortController();
  // Once: a second Ctrl-C ends the process at once.
  const interrupt = () => stop.abort();
  process.once("SIGINT", interrupt);
  try {
    await using model = await loadModel(flags, { signal: stop.signal });
    const options = { ...generateOptions(flags), signal: stop.signal };
    const messages: ChatMessage[] = [{ role: "user", content: prompt }];
    if (flags.system !== undefined) messages.unshift({ role: "system", content: flags.system });
    const generation = flags.raw ? model.generate(prompt, options) : model.chat(messages, options);
    if (flags.json) {
      process.stdout.write(`${JSON.stringify(resultAsJson(model, await generation), null, 2)}\n`);
      return;
    }
    let last = "";
    for await (const chunk of generation) {
      process.stdout.write(chunk.text);
      last = chunk.text || last;
    }
    if (!last.endsWith("\n")) process.stdout.write("\n");
    remark(speed(await generation));
  } catch (error) {
    if (!stop.signal.aborted) throw error;
    process.stdout.write("\n");
    process.exitCode = exitCodes.interrupted;
  } finally {
    process.off("SIGINT", interrupt);
  }
}

function resultAsJson(model: Model, result: GenerationResult): object {
  const { architecture, path, device, numerics } = model.info;
  return {
    model: { architecture, path, device: device.kind, numerics },
    text: result.text,
    finishReason: result.finishReason,
    stopReason: result.stopReason,
    usage: result.usage,
    timings: result.timings,
    tokens: result.tokens.map((token) => ({
      id: token.id,
      bytes: [...token.bytes],
      ...(token.logprob !== undefined && { logprob: token.logprob }),
      ...(token.topLogprobs && {
        topLogprobs: token.topLogprobs.map(({ id, text, logprob }) => ({ id, text, logprob })),
      }),
    })),
  };
}

/** "[57 tokens, 310.4 tokens/s, first after 12 ms]" */
export function speed({ usage, timings }: GenerationResult): string {
  return `[${usage.completionTokens} tokens, ${timings.tokensPerSecond.toFixed(1)} tokens/s, first after ${timings.firstTokenMs.toFixed(0)} ms]`;
}
