// sample: from logits to tokens and log-probabilities, see "The sample program" in docs/plan.md. Rows are shared out to
// the threads, or, where they are few, the columns of one row after the other in chunks of a fixed width: the same
// bits. NaN counts as -infinity; a row without any finite logit gives token 0.
#include "cpu/elementwise/rows.h"
#include "cpu/sample/adjust.h"
#include "cpu/sample/filter.h"
#include "cpu/sample/philox.h"

namespace {
using namespace ix::cpu;

struct Best {
  float value;
  int32_t token;
};
constexpr Best kNothing = {-kInf, INT32_MAX};
IX_INLINE Best better(Best a, Best b) { return before(b.value, b.token, a.value, a.token) ? b : a; }

Best best_lane(Vf value, Vi token) {
  Best best = kNothing;
  for (int i = 0; i < kLanes; i++) best = better(best, {value[i], token[i]});
  return best;
}

// The largest of x[0, n), which starts at token `first`.
Best greedy(const float* x, int n, int first) {
  Vf top = splat(-kInf);
  Vi token = splat_i(INT32_MAX);
  for_lanes(n, [&](int i, int count) __attribute__((always_inline)) {
    const Vf v = load_part(x + i, count);
    const Vi larger = (v > top) & (iota() < splat_i(count));
    top = larger ? v : top;
    token = larger ? iota() + splat_i(first + i) : token;
  });
  return best_lane(top, token);
}

// The same of x / temperature + noise; `first` is a multiple of 4. Groups that the largest possible noise would not
// lift over what is found already are skipped: most of a row of real logits.
Best draw(const float* x, int n, int first, float temperature, const PhiloxKey& key) {
  Best best = kNothing;
  for (int i = 0; i < n; i += 4 * kLanes) {
    Vf z[4], most = splat(-kInf);
    for (int j = 0; j < 4; j++) {
      const int at = i + j * kLanes, count = n - at;
      z[j] = (count >= kLanes ? load(x + at) : load_first(x + at, count)) / splat(temperature);
      z[j] = (z[j] == z[j]) & (iota() < splat_i(count)) ? z[j] : splat(-kInf);
      most = max(z[j], most);
    }
    if (max_lanes(most) + kMaxGumbel < best.value) continue;
    const PhiloxWords words = by_token(key((Vu)(iota() + splat_i((first + i) / 4))));
    Vf top = splat(-kInf);
    Vi token = splat_i(INT32_MAX);
    for (int j = 0; j < 4; j++) {
      const Vf score = z[j] + gumbel(words.word[j]);
      const Vi larger = score > top;
      top = larger ? score : top;
      token = larger ? iota() + splat_i(first + i + j * kLanes) : token;
    }
    best = better(best, best_lane(top, token));
  }
  return best;
}

Best draw_entries(const Entry* entries, int n, const PhiloxKey& key) {
  Best best = kNothing;
  for (int i = 0; i < n; i += kLanes) {
    Vf value = splat(-kInf);
    Vi token = splat_i(INT32_MAX);
    for (int j = 0; j < min(kLanes, n - i); j++) value[j] = entries[i + j].value, token[j] = entries[i + j].token;
    const PhiloxWords w = key((Vu)(token >> 2));
    const Vi which = token & 3;
    const Vu even = (which == splat_i(0)) ? w.word[0] : w.word[2], odd = (which == splat_i(1)) ? w.word[1] : w.word[3];
    best = better(best, best_lane(value + gumbel((which & 1) == 0 ? even : odd), token));
  }
  return best;
}

struct ChunkResult {
  Best best;
  float top;               // of what the filter sees
  float raw_top, raw_sum;  // of the logits as they came
};

struct Scratch {
  float* z;  // adjusted logits, then divided by the temperature
  ChunkResult* chunks;
  SelectScratch select;
};

struct Workspace {
  char* base;
  int columns;
  size_t bytes = 0;  // of one thread

  Workspace(void* base, int columns) : base(static_cast<char*>(base)), columns(columns) { of(0); }
  Scratch of(int thread) {
    size_t at = bytes * size_t(thread);
    const size_t start = at;
    const auto take = [&](size_t size) {
      char* here = base + at;
      at += (size + 63) / 64 * 64;
      return here;
    };
    Scratch s;
    s.z = reinterpret_cast<float*>(take(sizeof(float) * columns));
    s.chunks = reinterpret_cast<ChunkResult*>(take(sizeof(ChunkResult) * num_chunks(columns)));
    s.select.tops = reinterpret_cast<float*>(take(sizeof(float) * num_blocks(columns)));
    s.select.tops_copy = reinterpret_cast<float*>(take(sizeof(float) * num_blocks(columns)));
    s.select.masses = reinterpret_cast<Masses*>(take(sizeof(Masses) * num_chunks(columns)));
    s.select.entries = reinterpret_cast<Entry*>(take(sizeof(Entry) * columns));
    bytes = at - start;
    return s;
  }
};

size_t workspace(const ix_kernel_call* call, int num_threads) {
  return Workspace(nullptr, call->operands[0].dims[1]).bytes * size_t(num_threads);
}

// The call's operands, by name.
struct Operands {
  const ix_tensor &logits, &row_state, &position, &seed, &sample_index, &target, &temperature, &top_k, &top_p, &min_p;
  const ix_tensor &repetition, &presence, &frequency, &num_logprobs, &bias_start, &bias_token, &bias_value, &history;
  const ix_tensor &mask, &mask_row, &token, &logprob, &top_tokens, &top_logprobs;
};

Operands operands_of(const ix_tensor* t) {
  return {t[0],  t[1],  t[2],  t[3],  t[4],  t[5],  t[6],  t[7],  t[8],  t[9],  t[10], t[11],
          t[12], t[13], t[14], t[15], t[16], t[17], t[18], t[19], t[20], t[21], t[22], t[23]};
}

struct Row {
  const Operands& o;
  int s, columns;
  const float* logits;
  uint32_t* history;  // NULL: none
  int target, num_logprobs;
  float temperature;
  FilterRule rule;
  Adjustment adjustment;
  PhiloxKey key;

  Row(const Operands& o, int s) : o(o), s(s), columns(o.logits.dims[1]), logits(row(o.logits, s)) {
    const int state = ints(o.row_state)[s], mask_row = o.mask.data ? ints(o.mask_row)[s] : -1;
    const int first_bias = ints(o.bias_start)[s];
    history = state >= 0 ? reinterpret_cast<uint32_t*>(row_i(o.history, state)) : nullptr;
    target = ints(o.target)[s];
    num_logprobs = min(ints(o.num_logprobs)[s], min(columns, o.top_tokens.dims[1]));
    temperature = floats(o.temperature)[s];
    rule = {ints(o.top_k)[s], floats(o.top_p)[s], floats(o.min_p)[s]};
    const float repetition = floats(o.repetition)[s], presence = floats(o.presence)[s],
                frequency = floats(o.frequency)[s];
    const bool penalties = history && (repetition != 1 || presence != 0 || frequency != 0);
    adjustment = {ints(o.bias_token) + first_bias,
                  floats(o.bias_value) + first_bias,
                  ints(o.bias_start)[s + 1] - first_bias,
                  mask_row >= 0 ? reinterpret_cast<const uint32_t*>(row_i(o.mask, mask_row)) : nullptr,
                  penalties ? history : nullptr,
                  repetition,
                  presence,
                  frequency};
    const uint32_t* seed = reinterpret_cast<const uint32_t*>(row_i(o.seed, s));
    key = {{seed[0], seed[1]}, {uint32_t(ints(o.position)[s]), uint32_t(ints(o.sample_index)[s]), 0}};
  }
  bool drawn() const { return target < 0; }
  bool filtered() const { return drawn() && temperature > 0 && rule.active(columns); }

  ChunkResult run_chunk(int first, int count, const Scratch& scratch) const {
    ChunkResult result{kNothing, -kInf, -kInf, 0};
    const float* x = logits + first;
    if (num_logprobs >= 0) {
      result.raw_top = greedy(x, count, first).value;
      if (result.raw_top > -kInf) result.raw_sum = sum_exp(x, count, result.raw_top);
    }
    if (!drawn()) return result;
    float* z = scratch.z + first;
    if (adjustment.active()) {
      adjust(adjustment, logits, z, first, count);
      x = z;
    }
    if (filtered()) {
      for_lanes(count, [&](int i, int n) __attribute__((always_inline)) {
        const Vf v = load_part(x + i, n) / splat(temperature);
        store_part(z + i, v == v ? v : splat(-kInf), n);
      });
      float* tops = scratch.select.tops + first / kBlock;
      block_tops(z, count, tops);
      for (int b = 0; b < num_blocks(count); b++) result.top = max(tops[b], result.top);
    } else {
      result.best = temperature > 0 ? draw(x, count, first, temperature, key) : greedy(x, count, first);
    }
    return result;
  }

  template <class Chunks>
  int pick(const Scratch& scratch, Chunks&& chunks) const {
    Best best = kNothing;
    float top = -kInf;
    for (int c = 0; c < num_chunks(columns); c++) {
      best = better(best, scratch.chunks[c].best);
      top = max(scratch.chunks[c].top, top);
    }
    if (filtered() && top > -kInf) {
      const int n = filter(scratch.z, columns, top, rule, scratch.select, chunks);
      best = draw_entries(scratch.select.entries, n, key);
    }
    return best.token < columns ? best.token : 0;
  }

  // Log-probabilities of the chosen token and of the most likely ones, from the logits as they came.
  template <class Chunks>
  void report(int token, const Scratch& scratch, Chunks&& chunks) const {
    for (int j = 0; j < o.top_tokens.dims[1]; j++) row_i(o.top_tokens, s)[j] = -1, row(o.top_logprobs, s)[j] = 0;
    *row(o.logprob, s) = 0;
    if (num_logprobs < 0) return;
    float top = -kInf;
    for (int c = 0; c < num_chunks(columns); c++) top = max(scratch.chunks[c].raw_top, top);
    double sum = 0;
    for (int c = 0; c < num_chunks(columns); c++)
      if (scratch.chunks[c].raw_top > -kInf)
        sum += scratch.chunks[c].raw_sum * ::exp(double(scratch.chunks[c].raw_top) - top);
    const double log_sum = top + ::log(sum);
    const auto logprob_of = [&](float logit) { return logit > -kInf ? float(logit - log_sum) : -kInf; };
    *row(o.logprob, s) = token < columns ? logprob_of(logits[token]) : -kInf;
    if (num_logprobs == 0) return;
    float* tops = scratch.select.tops;
    chunks(num_chunks(columns), [&](int c) {
      block_tops(logits + c * kChunk, min(kChunk, columns - c * kChunk), tops + c * (kChunk / kBlock));
    });
    const float bound = bound_of(tops, num_blocks(columns), num_logprobs, scratch.select.tops_copy);
    Entry* entries = scratch.select.entries;
    const int found = gather(logits, columns, tops, bound, entries), n = min(found, num_logprobs);
    if (n == 0) return;
    select_first(entries, found, n);
    sort(entries, n);
    for (int j = 0; j < n; j++)
      row_i(o.top_tokens, s)[j] = entries[j].token, row(o.top_logprobs, s)[j] = logprob_of(entries[j].value);
  }

  template <class Chunks>
  void run(const Scratch& scratch, Chunks&& chunks) const {
    if (drawn() || num_logprobs >= 0)
      chunks(num_chunks(columns),
             [&](int c) { scratch.chunks[c] = run_chunk(c * kChunk, min(kChunk, columns - c * kChunk), scratch); });
    const int token = drawn() ? pick(scratch, chunks) : target;
    *row_i(o.token, s) = token;
    report(token, scratch, chunks);
    if (drawn() && history) history[token]++;
  }
};

void launch(ix_stream* stream, const ix_kernel_call* call) {
  const Operands o = operands_of(call->operands);
  const int rows = o.logits.dims[0];
  Workspace ws(call->workspace, o.logits.dims[1]);
  if (rows >= stream->num_threads) {
    parallel(stream, rows, [&](int s, int thread) {
      Workspace mine = ws;
      Row(o, s).run(mine.of(thread), [](int chunks, auto body) {
        for (int c = 0; c < chunks; c++) body(c);
      });
    });
  } else {
    const Scratch scratch = ws.of(0);
    for (int s = 0; s < rows; s++)
      Row(o, s).run(scratch, [&](int chunks, auto body) { parallel(stream, chunks, [&](int c, int) { body(c); }); });
  }
}
}  // namespace

// clang-format off: the name must follow the macro, CMake looks for it there
IX_KERNEL(sample,
          "sample(logits: f32[S,V], row_state: i32[S], position: i32[S], seed: u32[S,2], sample_index: i32[S], target: "
          "i32[S], temperature: f32[S], top_k: i32[S], top_p: f32[S], min_p: f32[S], repetition: f32[S], presence: f32[S], "
          "frequency: f32[S], num_logprobs: i32[S], bias_start: i32[S], bias_token: i32[B], bias_value: f32[B], history: "
          "u32[H,V], mask?: u32[M,W], mask_row: i32[S], top: i32) -> i32[S,1], f32[S,1], i32[S,top], f32[S,top]",
          "", launch, workspace)
// clang-format on
