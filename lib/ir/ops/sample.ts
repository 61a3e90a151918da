// From logits to tokens: penalties, filters, the Gumbel-max draw and log-probabilities (order of operations in docs/plan.md).
import { defineOp, type Operands, rowOf, type Tensor, table } from "./op.ts";
import { softmaxOf } from "./softmax.ts";

/** Philox4x32-10 (Salmon et al. 2011). */
export function philox(counter: readonly number[], key: readonly number[]): number[] {
  let [c0, c1, c2, c3] = counter as [number, number, number, number];
  let [k0, k1] = key as [number, number];
  for (let round = 0; round < 10; round++) {
    const p0 = BigInt(c0 >>> 0) * 0xd2511f53n;
    const p1 = BigInt(c2 >>> 0) * 0xcd9e8d57n;
    [c0, c1, c2, c3] = [
      (Number(p1 >> 32n) ^ c1 ^ k0) >>> 0,
      Number(p1 & 0xffffffffn),
      (Number(p0 >> 32n) ^ c3 ^ k1) >>> 0,
      Number(p0 & 0xffffffffn),
    ];
    k0 = (k0 + 0x9e3779b9) >>> 0;
    k1 = (k1 + 0xbb67ae85) >>> 0;
  }
  return [c0, c1, c2, c3];
}

/** The Gumbel noise of one token: independent of everything but seed, position, sample index and token. */
export function gumbel(seed: readonly number[], position: number, sampleIndex: number, token: number): number {
  const word = philox([token >>> 2, position, sampleIndex, 0], seed)[token % 4]!;
  return -Math.log(-Math.log(((word >>> 8) + 0.5) * 2 ** -24));
}

/** Adds bias, mask and penalties to a row of logits, in place. */
function adjust(row: number[], s: number, x: Operands): void {
  const biasStart = x.bias_start!.data;
  for (let i = biasStart[s]!; i < biasStart[s + 1]!; i++) row[x.bias_token!.data[i]!]! += x.bias_value!.data[i]!;
  const maskRow = x.mask_row!.data[s]!;
  if (x.mask && maskRow >= 0) {
    const words = x.mask.dims[1]!;
    row.forEach((_, v) => {
      if (((x.mask!.data[maskRow * words + (v >>> 5)]! >>> (v & 31)) & 1) === 0) row[v] = -Infinity;
    });
  }
  const state = x.row_state!.data[s]!;
  if (state < 0) return;
  const history = x.history!.data.subarray(state * row.length, (state + 1) * row.length);
  const [repetition, presence, frequency] = [x.repetition!.data[s]!, x.presence!.data[s]!, x.frequency!.data[s]!];
  history.forEach((seen, v) => {
    if (seen === 0) return;
    const generated = seen & 0x7fffffff;
    row[v] = row[v]! < 0 ? row[v]! * repetition : row[v]! / repetition;
    row[v]! -= frequency * generated + (generated > 0 ? presence : 0);
  });
}

/** Sets what top_k, top_p and min_p drop to -infinity; ties with the last kept of top_k stay. */
function filter(row: number[], topK: number, topP: number, minP: number): void {
  const drop = (keep: (v: number) => boolean) => {
    for (let v = 0; v < row.length; v++) if (!keep(v)) row[v] = -Infinity;
  };
  if (topK > 0 && topK < row.length) {
    const least = row.toSorted((a, b) => b - a)[topK - 1]!;
    drop((v) => row[v]! >= least);
  }
  if (topP < 1) {
    const p = softmaxOf(row);
    const order = Array.from(row.keys()).sort((a, b) => p[b]! - p[a]! || a - b);
    let before = 0;
    const kept = new Set(order.filter((_, i) => (before += i === 0 ? 0 : p[order[i - 1]!]!) < topP || i === 0));
    drop((v) => kept.has(v));
  }
  if (minP > 0) {
    const least = Math.log(minP) + row.reduce((a, v) => Math.max(a, v), -Infinity);
    drop((v) => row[v]! >= least);
  }
}

function argmax(count: number, at: (v: number) => number): number {
  let best = 0;
  for (let v = 1, top = at(0); v < count; v++) {
    const value = at(v);
    if (value > top) [best, top] = [v, value];
  }
  return best;
}

/** A row of logits after bias, mask, penalties and (unless temperature is 0) temperature and filters: what is drawn from. */
export function processRow(raw: readonly number[], s: number, x: Operands): number[] {
  const row = raw.slice();
  adjust(row, s, x);
  const temperature = x.temperature!.data[s]!;
  if (temperature === 0) return row;
  const scaled = row.map((value) => value / temperature);
  filter(scaled, x.top_k!.data[s]!, x.top_p!.data[s]!, x.min_p!.data[s]!);
  return scaled;
}

function draw(raw: readonly number[], s: number, x: Operands): number {
  const row = processRow(raw, s, x);
  if (x.temperature!.data[s] === 0) return argmax(row.length, (v) => row[v]!);
  const seed = [x.seed!.data[2 * s]!, x.seed!.data[2 * s + 1]!];
  const noise = (v: number) => gumbel(seed, x.position!.data[s]!, x.sample_index!.data[s]!, v);
  return argmax(row.length, (v) => (row[v] === -Infinity ? -Infinity : row[v]! + noise(v)));
}

export const sample = defineOp(
  "sample(logits: f32[S,V], row_state: i32[S], position: i32[S], seed: u32[S,2], sample_index: i32[S], target: i32[S], temperature: f32[S], top_k: i32[S], top_p: f32[S], min_p: f32[S], repetition: f32[S], presence: f32[S], frequency: f32[S], num_logprobs: i32[S], bias_start: i32[S], bias_token: i32[B], bias_value: f32[B], history: u32[H,V], mask?: u32[M,W], mask_row: i32[S], top: i32) -> i32[S,1], f32[S,1], i32[S,top], f32[S,top]",
  {
    evaluate: (x, { top }) => {
      const [rows, vocabulary] = x.logits!.dims as [number, number];
      const token: Tensor = { dims: [rows, 1], data: new Int32Array(rows) };
      const tokenLogprob = table(rows, 1, () => 0);
      const topTokens: Tensor = { dims: [rows, top!], data: new Int32Array(rows * top!).fill(-1) };
      const topLogprobs = table(rows, top!, () => 0);
      for (let s = 0; s < rows; s++) {
        const raw = Array.from(rowOf(x.logits!, s));
        const target = x.target!.data[s]!;
        const state = x.row_state!.data[s]!;
        if (target < 0) {
          token.data[s] = draw(raw, s, x);
          if (state >= 0) x.history!.data[state * vocabulary + token.data[s]!]! += 1;
        } else {
          token.data[s] = target;
        }
        const wanted = x.num_logprobs!.data[s]!;
        if (wanted < 0) continue;
        const logprobs = softmaxOf(raw).map(Math.log);
        tokenLogprob.data[s] = logprobs[token.data[s]!]!;
        const order = Array.from(raw.keys()).sort((a, b) => raw[b]! - raw[a]! || a - b);
        for (let j = 0; j < Math.min(wanted, top!); j++) {
          topTokens.data[s * top! + j] = order[j]!;
          topLogprobs.data[s * top! + j] = logprobs[order[j]!]!;
        }
      }
      return [token, tokenLogprob, topTokens, topLogprobs];
    },
  },
);
