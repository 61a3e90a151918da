// `inferx chat`: a conversation. On a terminal with prompt, line editing and Ctrl-C; piped, every line of stdin is a turn.
import { createInterface, type Interface } from "node:readline";
import type { Command } from "commander";
import { InferxError } from "../base/errors.ts";
import type { ChatMessage, GenerateOptions, Model } from "../index.ts";
import { exitCodes } from "./exit-codes.ts";
import {
  addGenerateOptions,
  addModelOptions,
  type GenerateFlags,
  generateOptions,
  loadModel,
  type ModelFlags,
} from "./options.ts";
import { speed } from "./run.ts";
import { remark, reportError } from "./terminal.ts";

interface ChatFlags extends ModelFlags, GenerateFlags {
  system?: string;
}

const commandsText = `/reset  start a new conversation
/exit   leave (also Ctrl-D, or Ctrl-C at an empty prompt)
/help   this text
Ctrl-C  stops the answer`;

export function addChatCommand(program: Command): void {
  const command = program.command("chat").description("talk with a model");
  addGenerateOptions(addModelOptions(command)).option("--system <text>", "system message").action(chat);
}

async function chat(flags: ChatFlags): Promise<void> {
  const stop = new AbortController();
  const interrupt = () => stop.abort();
  process.once("SIGINT", interrupt);
  await using model = await loadModel(flags, { signal: stop.signal });
  process.off("SIGINT", interrupt);
  await new Conversation(model, generateOptions(flags), flags.system).run();
}

/** The turns of one conversation and what Ctrl-C means in each of its two states: answering or waiting for a line. */
class Conversation {
  readonly #model: Model;
  readonly #options: GenerateOptions;
  readonly #opening: ChatMessage[];
  #messages: ChatMessage[];
  #answering: AbortController | undefined;

  constructor(model: Model, options: GenerateOptions, system: string | undefined) {
    this.#model = model;
    this.#options = options;
    this.#opening = system === undefined ? [] : [{ role: "system", content: system }];
    this.#messages = [...this.#opening];
  }

  async run(): Promise<void> {
    const terminal = process.stdin.isTTY && process.stdout.isTTY;
    const lines = createInterface({ input: process.stdin, ...(terminal && { output: process.stdout, prompt: "> " }) });
    const interrupt = () => this.#interrupt(lines);
    // On a terminal readline takes Ctrl-C as a key; otherwise it is a signal.
    lines.on("SIGINT", interrupt);
    process.on("SIGINT", interrupt);
    if (terminal) {
      const { path, device } = this.#model.info;
      remark(`${path} on ${device.name}, ${device.threads} threads. /help shows the commands.`);
      lines.prompt();
    }
    try {
      for await (const line of lines) {
        if ((await this.#turn(line.trim())) === "leave") break;
        if (terminal) lines.prompt();
      }
    } finally {
      lines.close();
      process.off("SIGINT", interrupt);
    }
  }

  #interrupt(lines: Interface): void {
    if (this.#answering) {
      this.#answering.abort();
      return;
    }
    if (lines.terminal && lines.line !== "") {
      lines.write(null, { ctrl: true, name: "u" }); // wipes what was typed
      return;
    }
    if (lines.terminal) process.stdout.write("\n");
    else process.exitCode = exitCodes.interrupted;
    lines.close();
  }

  async #turn(line: string): Promise<"leave" | undefined> {
    if (line === "" || line === "/help") {
      if (line) process.stdout.write(`${commandsText}\n`);
    } else if (line === "/exit") return "leave";
    else if (line === "/reset") this.#messages = [...this.#opening];
    else await this.#answer(line);
    return undefined;
  }

  /** A turn that fails leaves the conversation as it was; a turn that was stopped keeps what was said. */
  async #answer(question: string): Promise<void> {
    const messages: ChatMessage[] = [...this.#messages, { role: "user", content: question }];
    this.#answering = new AbortController();
    let answer = "";
    try {
      const generation = this.#model.chat(messages, { ...this.#options, signal: this.#answering.signal });
      for await (const { text } of generation) {
        process.stdout.write(text);
        answer += text;
      }
      process.stdout.write("\n");
      remark(speed(await generation));
    } catch (error) {
      process.stdout.write("\n");
      if (!this.#answering.signal.aborted) {
        reportError(error);
        if (InferxError.is(error) && error.code === "IX_CONTEXT_OVERFLOW")
          remark("  /reset starts a new conversation.");
        if (!process.stdin.isTTY) process.exitCode = exitCodes.failure;
        return;
      }
    } finally {
      this.#answering = undefined;
    }
    this.#messages = answer === "" ? this.#messages : [...messages, { role: "assistant", content: answer }];
  }
}
