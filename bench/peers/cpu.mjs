// inferx against node-llama-cpp on the CPU: same GGUF file, same token ids, greedy, alternating, a process per run.
//
//   node bench/peers/cpu.mjs [--quick] [--shape 0.6B,135M,1.1B,demo] [--formats Q4_K_M,Q8_0,BF16] [--rounds 5] [--save]
//
// --quick: one format, fewer and shorter runs, and the three ratios and the fraction as the last line.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import os from "node:os";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { defaultPath, makeGguf } from "../models/make-gguf.mjs";
import { bytesPerToken, formats, operationsPerToken, shapes } from "../models/shapes.mjs";
import { median, report, round } from "../report.mjs";
import { peersFolder, versions } from "./engines.mjs";
import { probe } from "./machine.mjs";

const peer = "node-llama-cpp";
const { values: options } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    shape: { type: "string", default: "0.6B" },
    formats: { type: "string" },
    rounds: { type: "string" },
    save: { type: "boolean" },
  },
});
const numRounds = Number(options.rounds ?? (options.quick ? 3 : 5));
const sizes = options.quick
  ? { warmTokens: 64, promptTokens: 512, oneTokens: 24, eightTokens: 12 }
  : { warmTokens: 512, promptTokens: 512, oneTokens: 64, eightTokens: 32 };
const trialSizes = { warmTokens: 16, promptTokens: 64, oneTokens: 8, eightTokens: 4 };
const metrics = ["prompt512", "decode1", "decode8", ...(options.quick ? [] : ["decode1Busy"])];
const titles = {
  prompt512: "prompt of 512",
  decode1: "decode, 1 sequence",
  decode8: "decode, 8 together",
  decode1Busy: "decode, 1, one core busy",
};

/** A file to measure and what a token of it costs; the bundled model lies in caches, so no fraction is of use. */
function modelsToMeasure() {
  const wanted = (options.formats ?? (options.quick ? "Q4_K_M" : "Q4_K_M,Q8_0,BF16")).split(",");
  return options.shape.split(",").flatMap((shape) => {
    if (shape === "demo")
      return [
        { name: "bundled model", file: fileURLToPath(new URL("../../models/demo/demo-q8_0.gguf", import.meta.url)) },
      ];
    return wanted.map((format) => {
      if (!(shape in shapes) || !(format in formats)) throw new Error(`no shape ${shape} or no format ${format}`);
      const file = defaultPath(shape, format);
      if (!existsSync(file)) {
        process.stderr.write(`writing ${file}\n`);
        makeGguf(shape, format, file);
      }
      return {
        name: `${shape} ${format}`,
        file,
        weightBytes: bytesPerToken(shape, format),
        promptOperations: operationsPerToken(shape),
        dot: { BF16: "bf16Operations", F16: "f16Operations" }[format] ?? "int8Operations",
      };
    });
  });
}

/** Figures of one process; undefined when it takes longer than `timeout` milliseconds. */
function run(engine, file, cells, runSizes = sizes, timeout = undefined) {
  const program = fileURLToPath(new URL("./run.mjs", import.meta.url));
  const request = JSON.stringify({ engine, file, sizes: runSizes, cells });
  const { status, stdout, stderr, error } = spawnSync(process.execPath, [program, request], {
    encoding: "utf8",
    timeout,
    killSignal: "SIGKILL",
  });
  if (error?.code === "ETIMEDOUT") return undefined;
  if (status !== 0) throw new Error(`${engine}: ${stderr}`);
  return JSON.parse(stdout.trim().split("\n").at(-1));
}

/** Figures of one engine: by metric and number of threads, a value per round. */
class Figures {
  #byMetric = Object.fromEntries(metrics.map((metric) => [metric, new Map()]));

  add(runFigures) {
    for (const { metric, threads, ...figure } of runFigures) {
      const byThreads = this.#byMetric[metric];
      byThreads.set(threads, [...(byThreads.get(threads) ?? []), figure]);
    }
  }

  /** With the number of threads that is best for this metric: the median, and what was measured. */
  best(metric) {
    const rows = [...this.#byMetric[metric]].map(([threads, runs]) => {
      const rates = runs.map(({ tokensPerSecond }) => tokensPerSecond);
      return { threads, tokensPerSecond: round(median(rates)), rates: rates.map((rate) => round(rate)), runs };
    });
    return rows.sort((a, b) => b.tokensPerSecond - a.tokensPerSecond)[0];
  }
}

const cores = os.availableParallelism();
const threadCounts = [...new Set([1, Math.ceil(cores / 2), cores])];

/**
 * What the peer is asked for in each round: every number of threads that ended a short trial in time (its threads spin, and
 * may take minutes where other processes run), or, to be quick, the one that was best for the metric.
 */
function peerCells(file) {
  const trial = new Figures();
  const usable = threadCounts.filter((threads) => {
    const cells = metrics.map((metric) => ({ metric, threads }));
    // Alone, a thread has no other to spin for.
    const timeout = threads === 1 ? undefined : options.quick ? 20_000 : 120_000;
    const figures = run(peer, file, cells, trialSizes, timeout);
    if (figures) trial.add(figures);
    else process.stderr.write(`${peer} with ${threads} threads did not end its trial in time\n`);
    return figures !== undefined;
  });
  const counts = (metric) => (options.quick ? [trial.best(metric).threads] : usable);
  return metrics.flatMap((metric) => counts(metric).map((threads) => ({ metric, threads })));
}

function measure({ name, file, weightBytes, promptOperations, dot }) {
  const names = peersFolder() ? ["inferx", peer] : ["inferx"];
  const cells = { inferx: metrics.map((metric) => ({ metric })), [peer]: peersFolder() && peerCells(file) };
  const figures = { inferx: new Figures(), [peer]: new Figures() };
  const limits = [];
  for (let i = 0; i < numRounds; i++) {
    limits.push(probe());
    for (const engine of i % 2 ? names.toReversed() : names) figures[engine].add(run(engine, file, cells[engine]));
  }
  const limit = (key) => Math.max(...limits.map((limits) => limits?.[key] ?? 0));
  const summaries = names.map((engine) => {
    const { prompt512, decode1, decode8, decode1Busy } = Object.fromEntries(
      metrics.map((metric) => [metric, figures[engine].best(metric)]),
    );
    const gaps = (best) => best.runs.flatMap((one) => one.gaps).sort((a, b) => a - b);
    const fraction = (rate, key) => (rate && limit(key) ? round(rate / limit(key), 3) : null);
    const without = ({ threads, tokensPerSecond, rates }) => ({ threads, tokensPerSecond, rates });
    return {
      engine,
      prompt512: without(prompt512),
      decode1: without(decode1),
      decode8: without(decode8),
      bandwidthFraction: fraction(decode1.tokensPerSecond * weightBytes, "readBytes"),
      dotFraction: fraction(prompt512.tokensPerSecond * promptOperations, dot),
      ...(decode1Busy && {
        decode1Busy: without(decode1Busy),
        keptBesideBusyCore: round(decode1Busy.tokensPerSecond / decode1.tokensPerSecond),
        p99GapBusyToFreeMedian: round(
          gaps(decode1Busy)[Math.floor(0.99 * gaps(decode1Busy).length)] / median(gaps(decode1)),
        ),
      }),
      ids: decode1.runs[0].ids,
    };
  });
  const [ours, theirs] = summaries;
  const ratio = (metric) => (theirs ? round(ours[metric].tokensPerSecond / theirs[metric].tokensPerSecond) : null);
  return {
    model: name,
    ratios: Object.fromEntries(metrics.map((metric) => [metric, ratio(metric)])),
    sameGreedyTokens: theirs ? commonPrefix(ours.ids, theirs.ids) : null,
    readBytesPerSecond: limit("readBytes"),
    dotOperationsPerSecond: limit(dot),
    engines: summaries.map(({ ids: _, ...summary }) => summary),
  };
}

function commonPrefix(a, b) {
  const different = a.findIndex((id, i) => id !== b[i]);
  return different < 0 ? a.length : different;
}

const percent = (fraction) => (fraction === null ? "-" : `${round(100 * fraction, 0)} %`);

function table({ model, ratios, sameGreedyTokens, engines: [ours, theirs] }) {
  const cell = (summary, metric) => {
    const best = summary?.[metric];
    return best ? `${round(best.tokensPerSecond, 1)} (${best.threads})` : "-";
  };
  const rows = metrics.map((metric) => [
    titles[metric],
    cell(ours, metric),
    cell(theirs, metric),
    ratios[metric] ?? "-",
  ]);
  const both = (title, show) => [title, show(ours), theirs ? show(theirs) : "-", ""];
  rows.push(both("of read bandwidth, decode of 1", (row) => percent(row.bandwidthFraction)));
  rows.push(both("of dot-product peak, prompt", (row) => percent(row.dotFraction)));
  if (ours.decode1Busy) {
    rows.push(both("speed kept beside a busy core", (row) => percent(row.keptBesideBusyCore)));
    rows.push(both("p99 gap there / free median", (row) => String(row.p99GapBusyToFreeMedian)));
  }
  const lines = [[model, "inferx", peer, "ratio"], ["---", "---", "---", "---"], ...rows];
  const same = theirs ? `First greedy tokens that are the same: ${sameGreedyTokens} of ${sizes.oneTokens + 1}.` : "";
  return `${lines.map((line) => `| ${line.join(" | ")} |`).join("\n")}\n\n${same}\n`;
}

if (!peersFolder()) {
  process.stderr.write(
    "node-llama-cpp is not installed, inferx is measured alone. To install it: npm install --prefix bench/peers\n",
  );
}
const results = modelsToMeasure().map((model) => {
  const result = measure(model);
  process.stderr.write(`${result.model} done\n`);
  return result;
});
report("peers-cpu", { versions: versions(), rounds: numRounds, sizes, results });
process.stdout.write(
  `\nTokens/s, median of ${numRounds}; in parentheses the threads.\n\n${results.map(table).join("\n")}`,
);
if (options.quick) {
  const [{ ratios, engines }] = results;
  const last = { ...ratios, bandwidthFraction: engines[0].bandwidthFraction };
  const fields = Object.entries(last).map(([key, value]) => `${JSON.stringify(key)}: ${JSON.stringify(value)}`);
  process.stdout.write(`\n{${fields.join(", ")}}\n`);
}
