// The sample kernel on the GPU: against a host evaluation by definition over random and degenerate rows (ties, -infinity, NaN, flat, one-hot,
// huge top_k; bias, mask, penalties), each row alone and beside others bit for bit, then times. Arguments: "small" checks a few small cases
// only (for compute-sanitizer).
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <thread>

#include "measure.cuh"

extern const ix_kernel ix_kernel_sample_cuda;

namespace {
struct Setting {
  float temperature;
  int top_k;
  float top_p, min_p;
};
constexpr Setting kSettings[] = {{0, 0, 1, 0},         {1, 0, 1, 0},         {0.7f, 40, 1, 0},        {1, 0, 0.9f, 0},    {0.8f, 50, 0.95f, 0.05f}, {1.5f, 0, 0.999f, 0},
                                 {2, 0, 1, 0.1f},      {1, 8000, 1, 0},      {1, 8000, 0.5f, 0},      {1, 0, 1e-6f, 0},   {1, 0, 0.7f, 0.3f},       {1, 1, 1, 0},
                                 {5, 0, 0.9999f, 0},   {1, 0, 0, 0},         {1, 0, 0.5f, 1.0f},      {1e-30f, 0, 1, 0},  {1, 1 << 30, 0.8f, 0},    {1, 700, 1, 0.001f},
                                 {0.5f, 200, 0.3f, 0}};
constexpr int kNumSettings = sizeof kSettings / sizeof *kSettings;
enum Kind { kGauss, kPeaked, kTies, kFlat, kOneHot, kMinusInfinity, kNan, kSparse, kSomeNan, kNumKinds };

float gauss(uint64_t i, uint32_t seed) {
  const double u = (random_bits(i, seed) + 0.5) / 4294967296.0, v = random_bits(i, seed + 1) / 4294967296.0;
  return float(std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v));
}
float logit(int kind, int row, int v, int columns) {
  const uint64_t i = uint64_t(row) * columns + v;
  const float x = gauss(i, 5);
  switch (kind) {
    case kGauss: return x;
    case kPeaked: return 4 * x;
    case kTies: return std::round(x * 16) / 16;
    case kFlat: return 0.25f;
    case kOneHot: return v == int(random_bits(row, 6) % columns) ? 10.0f : -20.0f;
    case kMinusInfinity: return -INFINITY;
    case kNan: return NAN;
    case kSparse: return random_bits(i, 7) % 64 == 0 || v == columns / 2 ? x : -INFINITY;
    default: return random_bits(i, 8) % 2 == 0 ? NAN : 3 * x;
  }
}

double noise(const uint32_t (&key)[2], uint32_t position, uint32_t index, int token) {
  uint32_t c[4] = {uint32_t(token) / 4, position, index, 0}, k[2] = {key[0], key[1]};
  for (int round = 0; round < 10; round++) {
    const uint64_t a = uint64_t(c[0]) * 0xD2511F53u, b = uint64_t(c[2]) * 0xCD9E8D57u;
    const uint32_t next[4] = {uint32_t(b >> 32) ^ c[1] ^ k[0], uint32_t(b), uint32_t(a >> 32) ^ c[3] ^ k[1], uint32_t(a)};
    std::memcpy(c, next, sizeof c);
    k[0] += 0x9E3779B9u, k[1] += 0xBB67AE85u;
  }
  return -std::log(-std::log((double(c[token % 4] >> 8) + 0.5) / 16777216.0));
}

// Inputs and results of all rows; any run of rows can be sampled by itself.
struct Step {
  ix_stream stream = new_stream();
  int rows, columns, top;
  int64_t stride;
  std::vector<float> logits, temperature, top_p, min_p, repetition, presence, frequency, bias_value;
  std::vector<int32_t> row_state, position, sample_index, target, top_k, num_logprobs, bias_start, bias_token, mask_row;
  std::vector<uint32_t> seed, history, mask;
  int words;
  std::map<const void*, void*> device;

  Step(int rows, int columns, int top) : rows(rows), columns(columns), top(top), stride((columns + 31) / 32 * 32), words((columns + 31) / 32) {
    logits.assign(rows * stride, NAN);
    for (auto* f : {&temperature, &top_p, &min_p, &repetition, &presence, &frequency}) f->assign(rows, 0);
    for (auto* i : {&row_state, &position, &sample_index, &target, &top_k, &num_logprobs, &mask_row}) i->assign(rows, 0);
    bias_start.assign(rows + 1, 0), seed.resize(rows * 2), history.assign(size_t(rows) * columns, 0), mask.assign(2 * words, 0);
    stream.counters = nullptr;
    for (int w = 0; w < words; w++) mask[w] = 0x12345678u * (w + 1) | 1u;  // row 1 allows nothing
    for (int s = 0; s < rows; s++) {
      set(s, kSettings[s % kNumSettings]);
      repetition[s] = 1, target[s] = -1, num_logprobs[s] = s % 3 == 0 ? -1 : std::min(s % 29, top), mask_row[s] = -1, row_state[s] = -1;
      position[s] = 100 + s, sample_index[s] = s % 4, seed[2 * s] = 17 * s + 1, seed[2 * s + 1] = s;
    }
  }
  ~Step() {
    for (auto& [host, memory] : device) cudaFree(memory);
    cudaStreamDestroy(stream.handle);
  }
  void set(int s, const Setting& f) { temperature[s] = f.temperature, top_k[s] = f.top_k, top_p[s] = f.top_p, min_p[s] = f.min_p; }
  // Bias, mask, penalties and given tokens for some of the rows.
  void vary() {
    for (int s = 0; s < rows; s++) {
      if (s % 5 == 1) {
        for (int i = 0; i < 40; i++) bias_token.push_back(int(random_bits(s * 100 + i / 2, 31) % columns) - (i == 6) * columns), bias_value.push_back(random_value(s * 100 + i, 32) * 3);
      }
      bias_start[s + 1] = int(bias_token.size());
      if (s % 7 == 2) mask_row[s] = 0;
      if (s % 31 == 30) mask_row[s] = 1;
      if (s % 6 == 4) {
        row_state[s] = s, repetition[s] = 1.3f, presence[s] = 0.5f, frequency[s] = 0.25f;
        for (int v = 0; v < columns; v += 1 + random_bits(v, s) % 9) history[size_t(s) * columns + v] = random_bits(v, s + 1) % 3 | (random_bits(v, s + 2) & 0x80000000u);
      }
      if (s % 23 == 22) target[s] = int(random_bits(s, 33) % columns);
    }
  }
  template <class T>
  T* on_device(const std::vector<T>& values) {
    void*& memory = device[&values];
    if (!memory) CHECK(cudaMalloc(&memory, std::max<size_t>(values.size(), 1) * sizeof(T)));
    CHECK(cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    return static_cast<T*>(memory);
  }
  struct Call {
    ix_tensor t[24];
    ix_attr attr;
  };
  struct Results {
    Memory<int32_t> token, top_tokens;
    Memory<float> logprob, top_logprobs;
    Memory<char> workspace;
    Results(int rows, int top, size_t bytes) : token(rows), top_tokens(rows * top), logprob(rows), top_logprobs(rows * top), workspace(bytes) {
      token.bytes(0xff), top_tokens.bytes(0xff), logprob.bytes(0xff), top_logprobs.bytes(0xff), workspace.bytes(0xff);
    }
  };
  Call call() {
    const auto list = [](auto* p) { return ix_tensor{const_cast<void*>(static_cast<const void*>(p)), 1, {0}, 1}; };
    Call c{{{on_device(logits), 2, {rows, columns}, stride}, list(on_device(row_state)), list(on_device(position)), {on_device(seed), 2, {rows, 2}, 2}, list(on_device(sample_index)), list(on_device(target)),
            list(on_device(temperature)), list(on_device(top_k)), list(on_device(top_p)), list(on_device(min_p)), list(on_device(repetition)), list(on_device(presence)), list(on_device(frequency)),
            list(on_device(num_logprobs)), list(on_device(bias_start)), list(on_device(bias_token)), list(on_device(bias_value)), {on_device(history), 2, {rows, columns}, columns},
            {on_device(mask), 2, {2, words}, words}, list(on_device(mask_row))},
           {}};
    c.attr.i = top;
    return c;
  }
  static size_t workspace(const Call& c) {
    const ix_kernel_call k{c.t, &c.attr, nullptr};
    return ix_kernel_sample_cuda.workspace(&k, 1);
  }
  void launch(Call c, Results& r, int first, int count) {
    for (int i = 0; i < 20; i++) {
      const bool per_row = i != 15 && i != 16 && i != 17 && i != 18;
      if (per_row) c.t[i].data = static_cast<char*>(c.t[i].data) + first * c.t[i].stride * 4;
      if (per_row) c.t[i].dims[0] = count;
    }
    c.t[20] = {r.token.data, 2, {count, 1}, 1}, c.t[21] = {r.logprob.data, 2, {count, 1}, 1};
    c.t[22] = {r.top_tokens.data, 2, {count, top}, top}, c.t[23] = {r.top_logprobs.data, 2, {count, top}, top};
    const ix_kernel_call k{c.t, &c.attr, r.workspace.data};
    ix_kernel_sample_cuda.launch(&stream, &k);
  }
};

struct Drawn {
  int token;
  bool sure;  // no rounding can have decided
};

Drawn expected(const Step& p, int s) {
  const int n = p.columns;
  const float* x = &p.logits[s * p.stride];
  std::vector<float> z(x, x + n);
  for (int i = p.bias_start[s]; i < p.bias_start[s + 1]; i++)
    if (p.bias_token[i] >= 0 && p.bias_token[i] < n) z[p.bias_token[i]] += p.bias_value[i];
  const bool penalties = p.row_state[s] >= 0;
  for (int v = 0; v < n; v++) {
    if (p.mask_row[s] >= 0 && !(p.mask_row[s] == 0 && p.mask[v / 32] >> (v % 32) & 1)) z[v] = -INFINITY;
    const uint32_t seen = penalties ? p.history[size_t(p.row_state[s]) * n + v] : 0;
    const float times = float(int32_t(seen & 0x7FFFFFFFu));
    if (seen) z[v] = (z[v] < 0 ? z[v] * p.repetition[s] : z[v] / p.repetition[s]) - p.frequency[s] * times - (times > 0 ? p.presence[s] : 0.0f);
    if (p.temperature[s] > 0) z[v] = z[v] / p.temperature[s];
    if (std::isnan(z[v])) z[v] = -INFINITY;
  }
  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) { return z[a] > z[b] || (z[a] == z[b] && a < b); });
  while (!order.empty() && z[order.back()] == -INFINITY) order.pop_back();
  if (order.empty()) return {0, true};
  if (!(p.temperature[s] > 0)) return {order[0], true};
  const double top = z[order[0]];
  if (std::isinf(top)) return {order[0], true};
  const bool by_rank = p.top_k[s] > 0 && p.top_k[s] < n;
  size_t kept = order.size();
  if (by_rank && size_t(p.top_k[s]) < kept)
    for (kept = p.top_k[s]; kept < order.size() && z[order[kept]] == z[order[p.top_k[s] - 1]];) kept++;
  double mass = 0, sum = 0, closest = 1, best = -INFINITY, second = -INFINITY;
  for (size_t i = 0; i < kept; i++) mass += std::exp(z[order[i]] - top);
  int token = 0;
  const uint32_t key[2] = {p.seed[2 * s], p.seed[2 * s + 1]};
  for (size_t i = 0; i < kept; i++) {
    const double weight = std::exp(z[order[i]] - top);
    if (p.top_p[s] < 1) closest = std::min(closest, std::fabs(sum / mass - p.top_p[s]) + (i == 0));
    if (p.min_p[s] > 0) closest = std::min(closest, std::fabs(weight - std::min(p.min_p[s], 1.0f)) + (weight == 1));
    if ((p.top_p[s] >= 1 || sum < double(p.top_p[s]) * mass || i == 0) && weight >= p.min_p[s]) {
      const double score = z[order[i]] + noise(key, p.position[s], p.sample_index[s], order[i]);
      if (score > best)
        second = best, best = score, token = order[i];
      else
        second = std::max(second, score);
    }
    sum += weight;
  }
  // An uncertain end of the nucleus matters only to a token that would win from there: near it the answer is open.
  return {token, best - second > 1e-5 && closest > (p.top_p[s] < 1 ? 3e-7 : 1e-6)};
}

int failed = 0, checked = 0, open_rows = 0;

void check(int rows, int columns, int kind, bool varied) {
  const int top = 20;
  Step p(rows, columns, top);
  std::vector<std::thread> threads;
  const auto parallel = [&](int n, auto body) {
    const int workers = std::min(16, n);
    for (int w = 0; w < workers; w++) threads.emplace_back([=] { for (int i = w; i < n; i += workers) body(i); });
    for (std::thread& t : threads) t.join();
    threads.clear();
  };
  parallel(rows, [&](int s) { for (int v = 0; v < columns; v++) p.logits[s * p.stride + v] = logit(kind < 0 ? s % kNumKinds : kind, s, v, columns); });
  if (varied) p.vary();
  const Step::Call call = p.call();
  Step::Results all(rows, top, Step::workspace(call));
  p.launch(call, all, 0, rows);
  CHECK(cudaStreamSynchronize(p.stream.handle));
  const auto token = all.token.get(), likely = all.top_tokens.get();
  const auto logprob = all.logprob.get(), likely_logprob = all.top_logprobs.get();
  std::vector<uint32_t> history(p.history.size());
  CHECK(cudaMemcpy(history.data(), p.device[&p.history], history.size() * 4, cudaMemcpyDeviceToHost));
  const int every = rows > 64 ? 5 : 1;
  std::vector<int> bad(rows, 0), open(rows, 0);
  parallel(rows, [&](int s) {
    if (s % every) return;
    if (p.target[s] < 0) {
      const Drawn want = expected(p, s);
      open[s] = !want.sure;
      if (want.sure && token[s] != want.token) bad[s] |= 1;
    } else if (token[s] != p.target[s]) {
      bad[s] |= 2;
    }
    if (p.row_state[s] >= 0)
      for (int v = 0; v < columns; v++)
        if (history[size_t(s) * columns + v] != p.history[size_t(s) * columns + v] + (p.target[s] < 0 && v == token[s])) bad[s] |= 4;
    const float* x = &p.logits[s * p.stride];
    const int wanted = p.num_logprobs[s];
    std::vector<int> order;
    for (int v = 0; v < columns; v++)
      if (x[v] > -INFINITY) order.push_back(v);
    const size_t some = std::min<size_t>(order.size(), top);
    std::partial_sort(order.begin(), order.begin() + some, order.end(), [&](int a, int b) { return x[a] > x[b] || (x[a] == x[b] && a < b); });
    double sum = 0;
    for (int v : order) sum += std::exp(double(x[v]) - x[order[0]]);
    const auto expect = [&](int v) { return x[v] > -INFINITY ? x[v] - x[order[0]] - std::log(sum) : -INFINITY; };
    const double own = wanted < 0 ? 0 : expect(token[s]);
    if (!(logprob[s] == own || std::fabs(logprob[s] - own) < 5e-6)) bad[s] |= 8;
    for (int j = 0; j < top; j++) {
      const bool used = j < wanted && j < int(order.size());
      if (likely[s * top + j] != (used ? order[j] : -1)) bad[s] |= 16;
      if (!(std::fabs(likely_logprob[s * top + j] - (used ? expect(order[j]) : 0)) < 5e-6)) bad[s] |= 32;
    }
  });
  // Each row by itself, on fresh histories: the same bits.
  p.on_device(p.history);
  Step::Results one(1, top, Step::workspace(call));
  for (int s = 0; s < rows; s += rows > 64 ? 37 : rows > 8 ? 5 : 1) {
    p.launch(call, one, s, 1);
    CHECK(cudaStreamSynchronize(p.stream.handle));
    const auto t = one.token.get(), l = one.top_tokens.get();
    const auto a = one.logprob.get(), b = one.top_logprobs.get();
    if (t[0] != token[s] || std::memcmp(&a[0], &logprob[s], 4) || std::memcmp(l.data(), &likely[s * top], top * 4) || std::memcmp(b.data(), &likely_logprob[s * top], top * 4)) bad[s] |= 64;
  }
  if (p.stream.error[0]) std::printf("FAILED %s\n", p.stream.error), failed++;
  int printed = 0;
  for (int s = 0; s < rows; s++) {
    checked++, failed += bad[s] != 0, open_rows += open[s];
    if (bad[s] && printed++ < 5)
      std::printf("FAILED (%d) row %d of %d x %d, kind %d, temperature %g top_k %d top_p %g min_p %g, mask %d, bias %d, penalties %d: token %d, logprob %g\n", bad[s], s, rows, columns,
                  kind < 0 ? s % kNumKinds : kind, p.temperature[s], p.top_k[s], p.top_p[s], p.min_p[s], p.mask_row[s], p.bias_start[s + 1] - p.bias_start[s], p.row_state[s], token[s], logprob[s]);
  }
}

void times() {
  constexpr int kColumns = 128256;
  struct Time {
    const char* name;
    Setting f;
    int kind, logprobs;
    bool penalties;
  };
  const Time all[] = {{"greedy", {0, 0, 1, 0}, kPeaked, -1, false},
                      {"temperature", {1, 0, 1, 0}, kPeaked, -1, false},
                      {"temperature, flat", {1, 0, 1, 0}, kFlat, -1, false},
                      {"top_k 50, top_p 0.95", {0.8f, 50, 0.95f, 0}, kPeaked, -1, false},
                      {"the same, 20 log-probabilities", {0.8f, 50, 0.95f, 0}, kPeaked, 20, false},
                      {"the same, penalties", {0.8f, 50, 0.95f, 0}, kPeaked, -1, true},
                      {"top_k 2000", {1, 2000, 1, 0}, kPeaked, -1, false},
                      {"top_p 0.9", {0.5f, 0, 0.9f, 0}, kPeaked, -1, false},
                      {"top_p 0.9, near flat", {1, 0, 0.9f, 0}, kGauss, -1, false},
                      {"top_p 0.9, flat", {1, 0, 0.9f, 0}, kFlat, -1, false},
                      {"min_p 0.05", {1, 0, 1, 0.05f}, kPeaked, -1, false}};
  std::printf("sample, %d columns, us      1 row   64 rows  256 rows\n", kColumns);
  std::map<int, std::vector<float>> rows_of;
  for (int kind : {kPeaked, kGauss, kFlat}) {
    std::vector<float>& x = rows_of[kind];
    x.resize(size_t(16) * kColumns);
    std::vector<std::thread> threads;
    for (int s = 0; s < 16; s++) threads.emplace_back([&x, s, kind] { for (int v = 0; v < kColumns; v++) x[size_t(s) * kColumns + v] = logit(kind, s, v, kColumns); });
    for (std::thread& t : threads) t.join();
  }
  std::map<std::string, std::vector<double>> table;
  for (int rows : {1, 64, 256}) {
    Step p(rows, kColumns, 20);
    const int copies = rows == 1 ? 128 : rows == 64 ? 4 : 2;
    Memory<float> logits(size_t(copies) * rows * p.stride);
    int last = -1;
    for (const Time& t : all) {
      for (int s = 0; s < rows; s++) {
        p.set(s, t.f);
        p.num_logprobs[s] = t.logprobs;
        p.row_state[s] = t.penalties ? s : -1, p.frequency[s] = t.penalties ? 0.1f : 0.0f;
      }
      Step::Call call = p.call();
      if (t.kind != last)
        for (int c = 0; c < copies * rows; c++) CHECK(cudaMemcpy(logits.data + c * p.stride, &rows_of[t.kind][size_t(c % 16) * kColumns], kColumns * 4, cudaMemcpyHostToDevice));
      last = t.kind;
      Step::Results r(rows, 20, Step::workspace(call));
      const double us = graph_us(p.stream, std::max(copies, 16), [&](int i) {
        call.t[0].data = logits.data + size_t(i % copies) * rows * p.stride;
        p.launch(call, r, 0, rows);
      });
      table[t.name].push_back(us);
    }
  }
  for (const Time& t : all) std::printf("%-24.24s%9.1f%10.1f%10.1f\n", t.name, table[t.name][0], table[t.name][1], table[t.name][2]);
}
}  // namespace

int main(int argc, char** argv) {
  const bool small = argc > 1 && !std::strcmp(argv[1], "small");
  if (small) {
    check(19, 1500, -1, true);
    check(3, 20011, kPeaked, true);
  } else {
    for (int columns : {1, 3, 70, 509, 20011}) {
      for (int kind = 0; kind < kNumKinds; kind++) check(38, columns, kind, false);
      check(190, columns, -1, true);
    }
    for (int kind : {kGauss, kPeaked, kTies, kFlat}) check(19, 128256, kind, false);
    check(1, 128256, kPeaked, true);
    check(3, 151936, kTies, true);
    check(64, 128256, -1, true);
    check(256, 32000, -1, true);
    check(4, 500001, -1, true);  // too long for the shared memory of a cluster
  }
  std::printf("sample: %d rows checked, %d failed, %d left open by rounding\n", checked, failed, open_rows);
  if (!small && !failed) times();
  return failed != 0;
}
