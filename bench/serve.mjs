// Tokens a second, time to the first token and gaps of the bundled model (or --model <path>) at 1, 8 and 32 requests at once.
// Median of several runs of `inferx bench`, each in a process of its own.
//
//   node bench/serve.mjs [rounds] [--model <path>] [--save]
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { median, report, round } from "./report.mjs";

const rounds = Number(process.argv[2]) || 5;
const at = process.argv.indexOf("--model");
const cli = fileURLToPath(new URL("../dist/cli.mjs", import.meta.url));
const args = [cli, "bench", "--json", ...(at > 0 ? ["--model", process.argv[at + 1]] : [])];

const runs = Array.from({ length: rounds }, () => {
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
  if (status !== 0) throw new Error(stderr);
  return JSON.parse(stdout);
});

const { model, device, numerics } = runs[0];
const rows = runs[0].rows.map(({ requests }, i) => {
  const of = (figure) => round(median(runs.map((run) => figure(run.rows[i]))));
  return {
    requests,
    tokensPerSecond: of((row) => row.tokensPerSecond),
    firstTokenMs: { p50: of((row) => row.firstTokenMs.p50), p99: of((row) => row.firstTokenMs.p99) },
    gapMs: { p50: of((row) => row.gapMs.p50), p99: of((row) => row.gapMs.p99) },
  };
});
report("serve", { rounds, model, device, numerics, rows });
