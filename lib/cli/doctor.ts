// `inferx doctor`: looks at everything that a model needs and says how to mend what is missing.
// It reads the machine itself rather than ask the engine, because it must work when the engine does not.
import type { Command } from "commander";
import { checkAddon, checkBundledModel, checkDevices } from "./doctor-inferx.ts";
import { checkCores, checkMemory, checkNode, checkProcessor } from "./doctor-machine.ts";
import { exitCodes } from "./exit-codes.ts";

/** `bad`: inferx does not work. `note`: it works, something optional is missing. */
export interface Finding {
  name: string;
  status: "ok" | "note" | "bad";
  found: string;
  /** What to do about it. */
  mend?: string;
}

export function addDoctorCommand(program: Command): void {
  program
    .command("doctor")
    .description("check what inferx needs on this machine and how to mend what is missing")
    .option("--json", "print one JSON object")
    .action(doctor);
}

async function doctor(flags: { json?: boolean }): Promise<void> {
  const addon = checkAddon();
  const findings = [checkNode(), checkProcessor(), checkCores(), checkMemory(), addon.finding, ...checkDevices(addon)];
  findings.push(await checkBundledModel(addon));
  const healthy = findings.every(({ status }) => status !== "bad");
  if (flags.json) process.stdout.write(`${JSON.stringify({ healthy, findings }, null, 2)}\n`);
  else process.stdout.write(report(findings, healthy));
  if (!healthy) process.exitCode = exitCodes.failure;
}

function report(findings: Finding[], healthy: boolean): string {
  const marks = { ok: "ok  ", note: "note", bad: "BAD " };
  const lines = findings.map(({ name, status, found, mend }) => {
    const line = `${marks[status]}  ${name.padEnd(14)}${found}`;
    return mend ? `${line}\n${" ".repeat(20)}-> ${mend}` : line;
  });
  return `${lines.join("\n")}\n\n${healthy ? "inferx works on this machine." : "inferx does not work yet; see the lines marked BAD."}\n`;
}
