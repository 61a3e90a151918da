// Drives the built `inferx` command as a user does: processes, pipes, signals and (through script(1)) a terminal.
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

export const root = fileURLToPath(new URL("../..", import.meta.url));
export const cli = fileURLToPath(new URL("../../dist/cli.mjs", import.meta.url));
if (!existsSync(cli)) throw new Error("dist/cli.mjs is missing: these tests run on the built package (npm run build)");

export interface Outcome {
  code: number | null;
  signal: NodeJS.Signals | null;
  stdout: string;
  stderr: string;
}

/** A running command whose output can be waited for. */
export class Session {
  readonly process: ChildProcess;
  readonly #ended: Promise<Outcome>;
  #stdout = "";
  #stderr = "";

  constructor(command: string, args: string[], env: NodeJS.ProcessEnv = {}) {
    this.process = spawn(command, args, { cwd: root, env: { ...process.env, ...env }, stdio: "pipe" });
    this.process.stdout!.setEncoding("utf8").on("data", (text: string) => {
      this.#stdout += text;
    });
    this.process.stderr!.setEncoding("utf8").on("data", (text: string) => {
      this.#stderr += text;
    });
    this.process.stdin!.on("error", () => {}); // it may end before it has read everything
    this.#ended = new Promise((resolve, reject) => {
      this.process.on("error", reject);
      this.process.on("close", (code, signal) => resolve({ code, signal, stdout: this.#stdout, stderr: this.#stderr }));
    });
  }

  get stdout(): string {
    return this.#stdout;
  }

  write(text: string): void {
    this.process.stdin!.write(text);
  }

  /** Resolves with what stdout holds once it matches after the first `from` characters; fails after 30 s or at the end. */
  async waitFor(pattern: RegExp, from = 0): Promise<string> {
    const deadline = performance.now() + 30_000;
    while (!pattern.test(this.#stdout.slice(from))) {
      if (performance.now() > deadline || this.process.exitCode !== null) {
        throw new Error(
          `${pattern} did not appear in ${JSON.stringify(this.#stdout.slice(from))}; stderr: ${this.#stderr}`,
        );
      }
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    return this.#stdout;
  }

  async end(): Promise<Outcome> {
    this.process.stdin!.end();
    return this.#ended;
  }
}

/** Runs `inferx …args` with `input` as its stdin. */
export function inferx(
  args: string[],
  { input = "", env = {} }: { input?: string; env?: NodeJS.ProcessEnv } = {},
): Promise<Outcome> {
  const session = new Session(process.execPath, [cli, ...args], env);
  session.write(input);
  return session.end();
}

/** Runs `inferx …args` on a pseudo-terminal, where stdout and stderr arrive together. */
export function terminal(args: string[]): Session {
  const command = [process.execPath, cli, ...args].map((word) => `'${word}'`).join(" ");
  return new Session("script", ["-qefc", command, "/dev/null"], { TERM: "xterm" });
}
