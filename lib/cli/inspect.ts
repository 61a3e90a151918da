// `inferx inspect`: what a model is made of, what it will take, and how its plan looks. Loads no weights (but --diff does).
import type { Command } from "commander";
import { InferxError } from "../base/errors.ts";
import { Model, type ModelOptions, type ModelPlan } from "../index.ts";
import { LoadError } from "./exit-codes.ts";
import { addModelOptions, type ModelFlags, modelOptions } from "./options.ts";
import { formatBytes } from "./terminal.ts";

interface InspectFlags extends ModelFlags {
  plan?: boolean;
  dump?: string;
  diff?: boolean;
  json?: boolean;
}

export function addInspectCommand(program: Command): void {
  const command = program
    .command("inspect")
    .description("show a model's architecture, tensors, memory and plan, without loading it")
    .argument("[model]", "folder with config.json, or .gguf file (default: the bundled model)");
  addModelOptions(command)
    .option("--plan", "print the finished plan")
    .option("--dump <pass>", "print the graph after this pass")
    .option("--diff", "run the plan against the interpreter and show the first step that differs")
    .option("--json", "print one JSON object")
    .action(inspect);
}

async function inspect(argument: string | undefined, flags: InspectFlags): Promise<void> {
  const path = argument ?? flags.model;
  const options = modelOptions(flags);
  try {
    if (flags.plan) process.stdout.write(await inspectPlan(path, options, { show: "plan" }));
    else if (flags.dump !== undefined)
      process.stdout.write(await inspectPlan(path, options, { show: "dump", pass: flags.dump }));
    else if (flags.diff) process.stdout.write(await inspectPlan(path, options, { show: "diff" }));
    else await describe(path, options, flags.json ?? false);
  } catch (error) {
    throw new LoadError(error);
  }
}

/** Plan, graph after a pass, or the first step where executor and interpreter differ; as text. */
async function inspectPlan(
  _path: string | undefined,
  _options: ModelOptions,
  request: { show: "plan" | "diff" } | { show: "dump"; pass: string },
): Promise<string> {
  throw new InferxError("IX_INTERNAL", `inspect --${request.show} is not wired to the compiler yet`);
}

async function describe(path: string | undefined, options: ModelOptions, json: boolean): Promise<void> {
  const plan = await Model.plan(path, options);
  if (json) process.stdout.write(`${JSON.stringify({ plan }, null, 2)}\n`);
  else process.stdout.write(memoryText(plan));
}

function memoryText(plan: ModelPlan): string {
  const row = (name: string, value: string) => `  ${name.padEnd(14)}${value}\n`;
  return (
    `${plan.architecture}, ${plan.parameters.toLocaleString("en")} parameters\n\nMemory\n` +
    row("weights", formatBytes(plan.weightBytes)) +
    row(
      "KV cache",
      `${formatBytes(plan.cacheBytes)}  (${plan.blocks} blocks of ${plan.blockTokens} tokens, ${formatBytes(plan.bytesPerToken)} a token)`,
    ) +
    row("activations", formatBytes(plan.activationBytes)) +
    row(
      "in all",
      `${formatBytes(plan.totalBytes)} of ${formatBytes(plan.freeBytes)} free: ${plan.fits ? "fits" : "does not fit"}`,
    )
  );
}
