// What every bench prints: one JSON object with the figures and the machine that gave them. `--save` also writes it to
// bench/results/<name>-<date>.json.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import os from "node:os";

const version = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8")).version;

export function report(name, figures) {
  const machine = {
    cpu: os.cpus()[0].model.trim(),
    cores: os.availableParallelism(),
    memoryGiB: Math.round(os.totalmem() / 2 ** 30),
    node: process.version,
  };
  const date = new Date().toISOString();
  const text = `${JSON.stringify({ bench: name, inferx: version, date, machine, ...figures }, null, 2)}\n`;
  process.stdout.write(text);
  if (!process.argv.includes("--save")) return;
  const folder = new URL("./results/", import.meta.url);
  mkdirSync(folder, { recursive: true });
  writeFileSync(new URL(`${name}-${date.slice(0, 10)}.json`, folder), text);
}

export function median(values) {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted.length % 2
    ? sorted[sorted.length >> 1]
    : (sorted[sorted.length / 2 - 1] + sorted[sorted.length / 2]) / 2;
}

/** Rounded for reading; the digits beyond carry nothing. */
export const round = (value, digits = 2) => Number(value.toFixed(digits));
