// The roofline picture of docs/performance-cpu.md from what cpu.mjs saved: each phase of each format by the operations that
// it does for a byte of weights (KV left out) and the operations it reached a second, under the machine's measured limits.
//
//   node bench/peers/roofline.mjs bench/results/<file>.json > docs/performance-cpu.svg
import { readFileSync } from "node:fs";
import { bytesPerToken, operationsPerToken, shapes } from "../models/shapes.mjs";
import { round } from "../report.mjs";

const width = 880;
const height = 600;
const plot = { left: 80, right: 850, top: 84, bottom: 500 };
const x = { from: 0.7, to: 2500, ticks: [1, 4, 16, 64, 256, 1024] };
const y = { from: 12e9, to: 1.1e12, ticks: [20e9, 50e9, 100e9, 200e9, 500e9, 1e12] };

const place = ({ from, to }, value, first, last) =>
  first + ((last - first) * Math.log(value / from)) / Math.log(to / from);
const atX = (value) => round(place(x, value, plot.left, plot.right), 1);
const atY = (value) => round(place(y, value, plot.bottom, plot.top), 1);
const giga = (value) => String(round(value / 1e9, value < 1e11 ? 1 : 0));

/** Phases: title, tokens of a step, and how many of them ask for logits. */
const phases = {
  decode1: { title: "decode, 1 sequence", tokens: 1, logits: 1 },
  decode8: { title: "decode, 8 together", tokens: 8, logits: 8 },
  prompt512: { title: "prompt of 512", tokens: 512, logits: 1 },
};

const saved = JSON.parse(readFileSync(process.argv[2], "utf8"));
const names = Object.keys(saved.versions);

/** Of the first shape in the file, for one picture shows one. */
const shapeName = saved.results.map(({ model }) => model.split(" ")[0]).find((name) => name in shapes);
const results = saved.results.filter(({ model }) => model.startsWith(`${shapeName} `));
const { hidden, vocabulary } = shapes[shapeName];
const series = results.map(({ model, ratios, engines, readBytesPerSecond, dotOperationsPerSecond }, color) => {
  const format = model.split(" ")[1];
  const bytes = bytesPerToken(shapeName, format);
  const points = Object.entries(phases).map(([metric, { tokens, logits, title }]) => {
    const operations = tokens * operationsPerToken(shapeName) + logits * 2 * hidden * vocabulary;
    return {
      metric,
      title,
      intensity: operations / bytes,
      ratio: ratios[metric],
      reached: engines.map((engine) => ({
        engine: engine.engine,
        tokensPerSecond: engine[metric].tokensPerSecond,
        rate: (engine[metric].tokensPerSecond * operations) / tokens,
      })),
    };
  });
  return { format, color, points, read: readBytesPerSecond, dot: dotOperationsPerSecond };
});

const text = (px, py, content, classes) => `<text x="${px}" y="${py}" class="${classes}">${content}</text>`;
const line = (x1, y1, x2, y2, classes) => `<path d="M${x1} ${y1}L${x2} ${y2}" class="${classes}"/>`;

const axes = [
  ...x.ticks.flatMap((tick) => [
    line(atX(tick), plot.top, atX(tick), plot.bottom, "grid"),
    text(atX(tick), plot.bottom + 18, tick, "s mid"),
  ]),
  ...y.ticks.flatMap((tick) => [
    line(plot.left, atY(tick), plot.right, atY(tick), "grid"),
    text(plot.left - 8, atY(tick) + 4, giga(tick), "s end"),
  ]),
  text((plot.left + plot.right) / 2, plot.bottom + 40, "operations per byte of weights", "s mid"),
  text(plot.left - 8, plot.top - 12, "GOP/s", "s end"),
];

/** Memory's slope up to the dot products' level. */
const roof = ({ color, read, dot }) => {
  const start = Math.max(x.from, y.from / read);
  const path = [start, dot / read].map((at) => `${atX(at)} ${atY(at * read)}`).concat(`${plot.right} ${atY(dot)}`);
  return `<path d="M${path.join("L")}" class="roof line${color}"/>`;
};

const slopeLabels = series.map(({ format, color, read }, i) =>
  text(plot.left + 16, plot.top + 96 + 18 * i, `${format}: memory ${giga(read)} GB/s`, `s fill${color}`),
);
const levels = new Map(series.map(({ format, dot }) => [dot, format === "BF16" ? "bf16" : "int8"]));
const levelLabels = [...levels].map(([dot, kind]) =>
  text(plot.right - 4, atY(dot) - 7, `${kind} dot products: ${giga(dot)} GOP/s`, "s end"),
);

const dots = series.flatMap(({ format, color, points }) =>
  points.map(({ title, intensity, ratio, reached }) => {
    const px = atX(intensity);
    const circles = reached.map(({ engine, tokensPerSecond, rate }) => {
      const kind = engine === names[0] ? `fill${color}` : `hollow line${color}`;
      const tip = `${format}, ${title}, ${engine}: ${tokensPerSecond} tokens/s, ${giga(rate)} GOP/s`;
      return `<circle cx="${px}" cy="${atY(rate)}" r="5.5" class="${kind}"><title>${tip}</title></circle>`;
    });
    if (reached.length < 2) return circles.join("");
    const [ours, theirs] = reached.map(({ rate }) => rate);
    const label = text(px + 8, (atY(ours) + atY(theirs)) / 2 + 4, `${ratio}x`, `s fill${color}`);
    return line(px, atY(ours), px, atY(theirs), `link line${color}`) + circles.join("") + label;
  }),
);

const brackets = Object.entries(phases).map(([metric, { title }]) => {
  const at = series.map(({ points }) => atX(points.find((point) => point.metric === metric).intensity));
  const [from, to] = [Math.min(...at) - 8, Math.max(...at) + 8];
  const middle = round((from + to) / 2, 1);
  return line(from, plot.bottom - 14, to, plot.bottom - 14, "bracket") + text(middle, plot.bottom - 20, title, "t mid");
});

const legend = series.map(({ format, color }, i) => {
  const px = plot.left + 110 * i;
  return `<circle cx="${px}" cy="${height - 26}" r="5.5" class="fill${color}"/>${text(px + 12, height - 22, format, "s")}`;
});
const engineLegend = names.map((name, i) => {
  const px = plot.left + 110 * series.length + 30 + 110 * i;
  const kind = i === 0 ? "ink" : "hollow bracket";
  return `<circle cx="${px}" cy="${height - 26}" r="5.5" class="${kind}"/>${text(px + 12, height - 22, name, "s")}`;
});

const { cpu, cores } = saved.machine;
const title = `${shapeName} on ${cores} cores of ${cpu}, ${saved.date.slice(0, 10)}`;
const light = ["#2166ac", "#b35806", "#1b7837", "#762a83"];
const dark = ["#7db8f0", "#f0a860", "#74cf92", "#cfa5dc"];
const colors = (list) =>
  list.map((color, i) => `.fill${i} { fill: ${color}; } .line${i} { stroke: ${color}; }`).join("\n    ");

process.stdout.write(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" role="img" aria-label="Roofline: ${title}">
  <style>
    svg { font-family: system-ui, sans-serif; }
    .bg { fill: #ffffff; }
    .t { fill: #1b2430; font-size: 13px; font-weight: 600; }
    .h { fill: #1b2430; font-size: 16px; font-weight: 600; }
    .s { font-size: 12px; } .s:not([class*="fill"]) { fill: #43505f; }
    .mid { text-anchor: middle; } .end { text-anchor: end; }
    .grid { stroke: #e3e7ed; } .bracket { stroke: #43505f; } .ink { fill: #43505f; }
    ${colors(light)}
    .roof { fill: none; stroke-width: 1.6; } .link { stroke-width: 1.2; stroke-dasharray: 2 3; }
    .hollow { fill: #ffffff; stroke-width: 2; }
    @media (prefers-color-scheme: dark) {
      .bg, .hollow { fill: #0f141b; }
      .t, .h { fill: #eef2f7; }
      .s:not([class*="fill"]), .ink { fill: #b9c4d0; }
      .grid { stroke: #252e39; } .bracket { stroke: #b9c4d0; }
      ${colors(dark)}
    }
  </style>
  <rect class="bg" width="${width}" height="${height}"/>
  ${text(plot.left, 30, title, "h")}
  ${text(plot.left, 50, `${names.join(" against ")}, medians of ${saved.rounds}`, "s")}
  ${[...axes, ...series.map(roof), ...slopeLabels, ...levelLabels, ...brackets, ...dots, ...legend, ...engineLegend].join("\n  ")}
</svg>
`);
