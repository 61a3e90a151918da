#!/usr/bin/env node
// Entry of the `inferx` command: which commands there are, and how a failure becomes a message and an exit code.
import { Command, CommanderError } from "commander";
import { addBenchCommand } from "./bench.ts";
import { addChatCommand } from "./chat.ts";
import { addDoctorCommand } from "./doctor.ts";
import { exitCodeOf, exitCodes, exitCodesText } from "./exit-codes.ts";
import { addInspectCommand } from "./inspect.ts";
import { addRunCommand } from "./run.ts";
import { endQuietlyOnClosedPipe, reportError } from "./terminal.ts";
import { packageVersion } from "./version.ts";

function createProgram(): Command {
  const program = new Command("inferx")
    .description("LLM inference inside a Node process")
    .version(packageVersion())
    .configureOutput({ outputError: (text, write) => write(text.replace(/^error: /, "inferx: ")) })
    .showHelpAfterError("(inferx --help lists commands and options)")
    .addHelpText("afterAll", `\n${exitCodesText}`)
    .exitOverride();
  for (const add of [addRunCommand, addChatCommand, addInspectCommand, addDoctorCommand, addBenchCommand]) add(program);
  return program;
}

async function main(): Promise<void> {
  endQuietlyOnClosedPipe();
  try {
    await createProgram().parseAsync();
  } catch (error) {
    if (error instanceof CommanderError) {
      // Commander has printed its message already; help and version are no failures.
      process.exitCode = error.exitCode === 0 ? exitCodes.ok : exitCodes.usage;
      return;
    }
    reportError(error);
    process.exitCode = exitCodeOf(error);
  }
}

void main();
