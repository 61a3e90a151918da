// Commands that answer: run, chat (piped and on a terminal), inspect, doctor and bench on the bundled model.
import { spawnSync } from "node:child_process";
import { describe, expect, test } from "vitest";
import { cli, inferx, Session, terminal } from "./command.ts";

const greedy = ["--temperature", "0"];
const story = "Tell me a story about a fox and a lantern.";
const hasScript = spawnSync("script", ["--version"]).status === 0;

describe("run", () => {
  test("streams the answer to stdout and nothing to stderr", async () => {
    expect(await inferx(["run", "How much is 16 plus 4?", ...greedy])).toEqual({
      code: 0,
      signal: null,
      stdout: "16 + 4 = 20\n",
      stderr: "",
    });
  });

  test("- reads the prompt from stdin", async () => {
    const { stdout } = await inferx(["run", "-", ...greedy], { input: "How much is 16 plus 4?" });
    expect(stdout).toBe("16 + 4 = 20\n");
  });

  test("--json gives one object whose text is the streamed one", async () => {
    const args = ["run", story, "--max-tokens", "24", ...greedy];
    const { text, usage, finishReason, tokens, timings } = JSON.parse(
      (await inferx([...args, "--json", "--logprobs", "2"])).stdout,
    );
    expect(`${text}\n`).toBe((await inferx(args)).stdout);
    expect(usage.completionTokens).toBe(24);
    expect(finishReason).toBe("length");
    expect(tokens).toHaveLength(24);
    expect(Buffer.concat(tokens.map((token: { bytes: number[] }) => Buffer.from(token.bytes))).toString()).toBe(text);
    for (const token of tokens) {
      expect(token.topLogprobs).toHaveLength(2);
      expect(token.topLogprobs[0].logprob).toBe(token.logprob); // greedy: the token is the likeliest
    }
    expect(timings.totalMs).toBeGreaterThan(0);
  });

  test("a seed fixes the text, another one changes it", async () => {
    const ask = async (seed: string) =>
      (await inferx(["run", story, "-n", "40", "--temperature", "1.2", "--seed", seed])).stdout;
    const first = await ask("7");
    expect(await ask("7")).toBe(first);
    expect(await ask("18446744073709551615")).not.toBe(first);
  });

  test("--stop ends the answer before the stop string", async () => {
    const { stdout } = await inferx(["run", "How much is 16 plus 4?", ...greedy, "--stop", " = "]);
    expect(stdout).toBe("16 + 4\n");
  });

  test.each([
    [["--temperature", "NaN"], 2],
    [["--temperature", "-1"], 2],
    [["--top-p", "2"], 2],
    [["--max-tokens", "-5"], 2],
    [["--max-tokens", "1.5"], 2],
    [["--context", "-1"], 2],
    [["--threads", "0"], 2],
  ])("%j is refused", async (flags, expected) => {
    const { code, stdout, stderr } = await inferx(["run", "hello", ...flags]);
    expect(stderr).toMatch(/^inferx: .+\n/);
    expect(stdout.trim()).toBe("");
    expect(code).toBe(expected);
  });

  test("a prompt longer than the context is an error, not a cut", async () => {
    const { code, stderr } = await inferx(["run", "-"], { input: "fox ".repeat(4000) });
    expect(stderr).toContain("[IX_CONTEXT_OVERFLOW]");
    expect(code).toBe(1);
  });

  test("a reader that leaves early ends it quietly", () => {
    const command = `"${process.execPath}" "${cli}" run "${story}" --max-tokens 400 | head -c 1; echo "\${PIPESTATUS[0]}" >&2`;
    const { stdout, stderr } = spawnSync("bash", ["-c", command], { encoding: "utf8" });
    expect(stdout).toHaveLength(1);
    expect(stderr).toBe("0\n");
  });

  test("Ctrl-C ends it with 130", async () => {
    const session = new Session(process.execPath, [cli, "run", story, "--raw", "--ignore-eos", "--max-tokens", "2000"]);
    await session.waitFor(/\w/);
    session.process.kill("SIGINT");
    expect(await session.end()).toMatchObject({ code: 130, signal: null, stderr: "" });
  });
});

describe("chat, piped", () => {
  test("each line is a turn, and turns remember the ones before", async () => {
    const { code, stdout, stderr } = await inferx(["chat", ...greedy], {
      input: "I live in Dublin.\nIn which city do I live?\n",
    });
    const answers = stdout.trimEnd().split("\n");
    expect(answers).toHaveLength(2);
    expect(answers[1]).toBe("You live in Dublin.");
    expect(stderr).toBe("");
    expect(code).toBe(0);
  });

  test("/reset forgets, /help explains, /exit leaves", async () => {
    const input = "I live in Dublin.\n/reset\nIn which city do I live?\n/help\n/exit\nHow much is 16 plus 4?\n";
    const { code, stdout } = await inferx(["chat", ...greedy], { input });
    expect(stdout).not.toContain("You live in Dublin.");
    expect(stdout).toContain("/reset  start a new conversation");
    expect(stdout).not.toContain("20");
    expect(code).toBe(0);
  });

  test("a turn that fails is reported, and the conversation goes on", async () => {
    const input = `${"fox ".repeat(4000)}\nHow much is 16 plus 4?\n`;
    const { code, stdout, stderr } = await inferx(["chat", ...greedy], { input });
    expect(stderr).toContain("[IX_CONTEXT_OVERFLOW]");
    expect(stdout.trim()).toBe("16 + 4 = 20");
    expect(code).toBe(1);
  });

  test("SIGINT stops the answer, not the program", async () => {
    const session = new Session(process.execPath, [cli, "chat", ...greedy]);
    session.write(`${story}\n`);
    await session.waitFor(/\w/);
    session.process.kill("SIGINT");
    await session.waitFor(/\n$/);
    const before = session.stdout.length;
    session.write("/reset\nHow much is 16 plus 4?\n");
    await session.waitFor(/16 \+ 4 = 20\n/, before);
    expect(await session.end()).toMatchObject({ code: 0, stderr: "" });
  });
});

describe.skipIf(!hasScript)("chat, on a terminal (skipped where script(1) is missing)", () => {
  test("Ctrl-C stops the answer; a second one at the empty prompt leaves", async () => {
    const session = terminal(["chat", ...greedy]);
    await session.waitFor(/> /);
    let seen = session.stdout.length;
    session.write(`${story}\r`);
    await session.waitFor(/lantern\.\s+\w{3}/, seen); // the echo, then the answer's first words
    session.write("\x03");
    await session.waitFor(/> \S*$/, seen);
    seen = session.stdout.length;
    session.write("How much is 16 plus 4?\r");
    await session.waitFor(/16 \+ 4 = 20[\s\S]*tokens\/s[\s\S]*> /, seen);
    session.write("half a line");
    session.write("\x03"); // wipes the line
    session.write("/help\r");
    await session.waitFor(/start a new conversation/, seen);
    session.write("\x03");
    expect(await session.end()).toMatchObject({ code: 0 });
  });

  test("loading shows progress, which is wiped", async () => {
    const session = terminal(["run", "How much is 16 plus 4?", ...greedy]);
    const { code, stdout } = await session.end();
    expect(stdout).toMatch(/\[#*-*\]/);
    expect(stdout.split("\x1b[K").at(-1)).toContain("16 + 4 = 20");
    expect(code).toBe(0);
  });
});

describe("inspect", () => {
  test("tells architecture, tensors and memory", async () => {
    const { code, stdout } = await inferx(["inspect"]);
    expect(stdout).toContain("LlamaForCausalLM");
    expect(stdout).toMatch(/q8_0/i);
    expect(stdout).toMatch(/KV cache +[\d.]+ [KMG]iB/);
    expect(code).toBe(0);
  });

  test("--plan prints steps, --dump a pass, and an unknown pass is named", async () => {
    expect((await inferx(["inspect", "--plan"])).stdout).toMatch(/attention/);
    expect((await inferx(["inspect", "--dump", "fuse"])).stdout).toMatch(/attention/);
    const { code, stderr } = await inferx(["inspect", "--dump", "dance"]);
    expect(stderr).toContain("dance");
    expect(code).toBe(2);
  });

  test("--diff finds no difference between executor and interpreter", async () => {
    const { code, stdout } = await inferx(["inspect", "--diff"]);
    expect(stdout).toMatch(/^\d+ steps equal the reference/);
    expect(code).toBe(0);
  });
});

test("doctor finds everything in order here", async () => {
  const { code, stdout } = await inferx(["doctor", "--json"]);
  const { healthy, findings } = JSON.parse(stdout);
  expect(findings.filter((finding: { status: string }) => finding.status === "bad")).toEqual([]);
  expect(findings.map((finding: { name: string }) => finding.name)).toContain("Bundled model");
  expect(healthy).toBe(true);
  expect(code).toBe(0);
});

test("bench measures what it says", async () => {
  const { code, stdout } = await inferx([
    "bench",
    "--requests",
    "1,4",
    "--prompt-tokens",
    "8",
    "--max-tokens",
    "16",
    "--json",
  ]);
  const { rows } = JSON.parse(stdout);
  expect(rows.map((row: { requests: number }) => row.requests)).toEqual([1, 4]);
  expect(rows.map((row: { generatedTokens: number }) => row.generatedTokens)).toEqual([16, 64]);
  for (const row of rows) expect(row.tokensPerSecond).toBeCloseTo(row.generatedTokens / row.seconds, 6);
  expect(code).toBe(0);
});
