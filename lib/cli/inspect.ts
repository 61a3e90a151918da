// `inferx inspect`: what a model is made of, what it will take, and how its plan looks. Compiles it, loads no weights.
import type { Command } from "commander";
import { inspectDifferences } from "../api/inspect.ts";
import { InferxError } from "../base/errors.ts";
import { Model, type ModelOptions } from "../index.ts";
import { LoadError } from "./exit-codes.ts";
import { addModelOptions, type ModelFlags, modelOptions } from "./options.ts";
import { formatBytes } from "./terminal.ts";

interface InspectFlags extends ModelFlags {
  tensors?: boolean;
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
    .option("--tensors", "list every tensor")
    .option("--plan", "print the finished plan")
    .option("--dump <pass>", "print the graph after this pass")
    .option("--diff", "run a prompt through the plan and through the reference, and show the first step that differs")
    .option("--json", "print one JSON object")
    .action(inspect);
}

async function inspect(argument: string | undefined, flags: InspectFlags): Promise<void> {
  const path = argument ?? flags.model;
  const options = modelOptions(flags);
  try {
    if (flags.diff) {
      await inspectDiff(path, options);
      return;
    }
    const pass = flags.plan ? "emit" : flags.dump;
    if (pass !== undefined) process.stdout.write(await inspectPlan(path, options, pass));
    else await describe(path, options, flags);
  } catch (error) {
    throw new LoadError(error);
  }
}

/** Errors up to this are rounding: the reference sums in float64, and int8 or bf16 activations lose more than f32 ones. */
const tolerance = { f32: 1e-4, fast: 0.1 };
const diffPrompt = "The quick brown fox jumps over the lazy dog.";

/** Every step of a prompt's forward beside the reference; the first one that differs decides the exit code. */
async function inspectDiff(path: string | undefined, options: ModelOptions): Promise<void> {
  const numerics = options.numerics ?? "f32";
  await using model = await Model.load(path, { ...options, numerics, scheduler: false });
  const prompt = model.prepared.text.tokenizer ? diffPrompt : [0, 1, 2, 3, 4, 5, 6, 7];
  let count = 0;
  let worst = 0;
  for await (const { step, name, error } of inspectDifferences(model, prompt)) {
    count++;
    worst = Math.max(worst, error);
    if (error <= tolerance[numerics]) continue;
    process.stdout.write(`step ${step} differs first: ${name}, relative error ${error.toExponential(2)}\n`);
    throw new InferxError("IX_INTERNAL", `the plan's step ${step} (${name}) differs from the reference`, {
      step,
      error,
    });
  }
  process.stdout.write(
    `${count} steps equal the reference (${numerics}); the largest relative error is ${worst.toExponential(2)}\n`,
  );
}

/** The text that a pass left: the graph, or of the last one the plan. */
async function inspectPlan(path: string | undefined, options: ModelOptions, pass: string): Promise<string> {
  await using model = await Model.load(path, { ...options, scheduler: false });
  const { dumps } = model.prepared;
  const text = dumps.get(pass)?.();
  if (text === undefined) {
    throw new InferxError(
      "IX_INVALID_ARGUMENT",
      `there is no pass "${pass}"; there are ${[...dumps.keys()].join(", ")}`,
    );
  }
  return text.endsWith("\n") ? text : `${text}\n`;
}

interface TensorRow {
  name: string;
  dtype: string;
  shape: number[];
  bytes: number;
}

async function describe(path: string | undefined, options: ModelOptions, flags: InspectFlags): Promise<void> {
  await using model = await Model.load(path, { ...options, scheduler: false });
  const plan = await Model.plan(path, options);
  const { checkpoint } = model.prepared;
  const tensors: TensorRow[] = [...checkpoint.tensors.values()].map(({ name, dtype, shape, byteLength }) => {
    return { name, dtype, shape, bytes: byteLength };
  });
  const { info } = model;
  const tokenizer = checkpoint.tokenizer?.kind ?? "none";
  const chatTemplate = checkpoint.chatTemplate !== undefined;
  if (flags.json) {
    process.stdout.write(`${JSON.stringify({ info, plan, tokenizer, chatTemplate, tensors }, null, 2)}\n`);
    return;
  }
  const formats = Object.entries(info.formats).map(([format, count]) => {
    const bytes = tensors.reduce((sum, { dtype, bytes }) => sum + (dtype === format ? bytes : 0), 0);
    return `${count} ${format} (${formatBytes(bytes)})`;
  });
  const { device } = info;
  const rows: [string, string][] = [
    ["model", info.path],
    ["architecture", `${info.architecture}, ${info.layers} layers of ${info.hiddenSize}`],
    ["parameters", info.parameters.toLocaleString("en")],
    [
      "vocabulary",
      `${info.vocabularySize} tokens, tokenizer ${tokenizer}, ${chatTemplate ? "with" : "no"} chat template`,
    ],
    ["context", `${info.contextLength} tokens`],
    ["tensors", `${tensors.length}: ${formats.join(", ")}`],
    ["device", `${device.kind}, ${device.name}, ${device.arch}, ${device.threads} threads, numerics ${info.numerics}`],
    ["weights", formatBytes(plan.weightBytes)],
    [
      "KV cache",
      `${formatBytes(plan.cacheBytes)} (${plan.blocks} blocks of ${plan.blockTokens} tokens in ${info.cacheDtype}, ${formatBytes(plan.bytesPerToken)} a token)`,
    ],
    ["activations", formatBytes(plan.activationBytes)],
    [
      "in all",
      `${formatBytes(plan.totalBytes)} of ${formatBytes(plan.freeBytes)} free: ${plan.fits ? "fits" : "does not fit"}`,
    ],
  ];
  process.stdout.write(rows.map(([name, value]) => `${name.padEnd(14)}${value}\n`).join(""));
  if (!flags.tensors) return;
  const width = Math.max(...tensors.map(({ name }) => name.length));
  for (const { name, dtype, shape, bytes } of tensors) {
    process.stdout.write(`${name.padEnd(width + 2)}${dtype.padEnd(6)}[${shape.join(", ")}]  ${formatBytes(bytes)}\n`);
  }
}
