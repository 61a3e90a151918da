// The sample kernel of the instruction set that isa_table() picks: Philox against its published vectors, filters and
// penalties against cases computed with another implementation, draws against the definition in double arithmetic.
#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "cpu/sample/filter.h"
#include "cpu/sample/philox.h"
#include "kernel_call.h"

using namespace test;

static double gumbel(uint32_t word) { return -std::log(-std::log(((word >> 8) + 0.5) * 0x1p-24)); }

// One counter after the other, straight from the paper.
static void philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4]) {
  uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]}, k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; round++) {
    const uint64_t p0 = uint64_t(0xD2511F53u) * c[0], p1 = uint64_t(0xCD9E8D57u) * c[2];
    const uint32_t next[4] = {uint32_t(p1 >> 32) ^ c[1] ^ k0, uint32_t(p1), uint32_t(p0 >> 32) ^ c[3] ^ k1,
                              uint32_t(p0)};
    std::memcpy(c, next, sizeof c);
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  std::memcpy(out, c, sizeof c);
}

static void test_philox() {
  struct Vector {
    uint32_t counter[4], key[2], expected[4];
  };
  const Vector vectors[] = {// kat_vectors of Random123
                            {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
                            {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
                            {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                             {0xa4093822, 0x299f31d0},
                             {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}};
  for (const Vector& v : vectors) {
    uint32_t plain[4];
    philox(v.key, v.counter, plain);
    const ix::cpu::PhiloxKey key{{v.key[0], v.key[1]}, {v.counter[1], v.counter[2], v.counter[3]}};
    const ix::cpu::PhiloxWords words = key(ix::cpu::splat_u(v.counter[0]));
    for (int i = 0; i < 4; i++)
      CHECK(plain[i] == v.expected[i] && words.word[i][1] == v.expected[i], "philox word %d: %08x %08x", i, plain[i],
            words.word[i][1]);
  }
  double worst = 0;
  for (uint64_t x = 0; x < (1 << 24); x += x < 70000 || x > (1 << 24) - 70000 ? 1 : 61) {
    const float g = ix::cpu::gumbel(ix::cpu::splat_u(uint32_t(x << 8)))[0];
    worst =
        std::max(worst, std::fabs(g - gumbel(uint32_t(x << 8))) / std::max(1.0, std::fabs(gumbel(uint32_t(x << 8)))));
  }
  CHECK(worst < 3e-7, "gumbel: error %.3g", worst);
}

// The operands of a step, neutral unless set.
struct Step {
  int rows, columns, top, histories;
  Floats logits;
  std::vector<int32_t> row_state, position, sample_index, target, top_k, num_logprobs, bias_start, bias_token, mask_row;
  std::vector<float> temperature, top_p, min_p, repetition, presence, frequency, bias_value;
  Table<uint32_t> seed, history, mask;
  bool masked = false;
  Ints token, top_tokens;
  Floats logprob, top_logprobs;

  Step(int rows, int columns, int top = 4, int histories = 2)
      : rows(rows),
        columns(columns),
        top(top),
        histories(histories),
        logits(rows, columns, [](int, int) { return 0; }),
        row_state(rows, -1),
        position(rows, 7),
        sample_index(rows, 0),
        target(rows, -1),
        top_k(rows, 0),
        num_logprobs(rows, -1),
        bias_start(rows + 1, 0),
        mask_row(rows, -1),
        temperature(rows, 1),
        top_p(rows, 1),
        min_p(rows, 0),
        repetition(rows, 1),
        presence(rows, 0),
        frequency(rows, 0),
        seed(rows, 2, [](int r, int c) { return 17 * r + c; }),
        history(histories, columns, [](int, int) { return 0; }),
        mask(2, (columns + 31) / 32, [](int, int) { return ~0u; }),
        token(rows, 1),
        top_tokens(rows, top),
        logprob(rows, 1),
        top_logprobs(rows, top) {}

  void run(int threads = 2) {
    call("sample",
         {logits,
          list(row_state),
          list(position),
          seed,
          list(sample_index),
          list(target),
          list(temperature),
          list(top_k),
          list(top_p),
          list(min_p),
          list(repetition),
          list(presence),
          list(frequency),
          list(num_logprobs),
          list(bias_start),
          list(bias_token),
          list(bias_value),
          history,
          masked ? ix_tensor(mask) : omitted(),
          list(mask_row),
          token,
          logprob,
          top_tokens,
          top_logprobs},
         {integer(top)}, threads);
    CHECK(token.padding_kept() && logprob.padding_kept() && top_tokens.padding_kept() && top_logprobs.padding_kept() &&
              logits.padding_kept() && history.padding_kept(),
          "sample wrote to padding");
  }
  double noise(int row, int token) const {
    const uint32_t key[2] = {seed.at(row, 0), seed.at(row, 1)};
    const uint32_t counter[4] = {uint32_t(token) / 4, uint32_t(position[row]), uint32_t(sample_index[row]), 0};
    uint32_t words[4];
    philox(key, counter, words);
    return gumbel(words[token % 4]);
  }
  // The draw by its definition among processed logits (-infinity = dropped); `margin` to the second best.
  int drawn(int row, const std::vector<double>& processed, double* margin) const {
    int best = 0;
    double top = -INFINITY, second = -INFINITY;
    for (int v = 0; v < columns; v++) {
      const double score = processed[v] == -INFINITY ? -INFINITY : processed[v] + noise(row, v);
      if (score > top) {
        second = top, top = score, best = v;
      } else {
        second = std::max(second, score);
      }
    }
    *margin = top - second;
    return best;
  }
};

struct Case {
  std::string id, vector;
  double temperature, top_p, min_p, repetition, frequency, presence;
  int top_k;
  std::vector<std::pair<int, float>> bias;
  std::vector<double> processed, probs;
};

static double number(std::istream& in) {
  std::string word;
  in >> word;
  return word == "-inf" ? -INFINITY : std::stod(word);
}

// Which tokens stay, by the kernel's own filter, as sorted probabilities (of all tokens).
static std::vector<double> filtered(const Case& c, const std::vector<double>& scaled) {
  const int n = int(scaled.size());
  std::vector<float> z(scaled.begin(), scaled.end()), tops(n), copy(n);
  std::vector<double> out(n);
  std::vector<ix::cpu::Masses> masses(n);
  std::vector<ix::cpu::Entry> entries(n);
  ix::cpu::block_tops(z.data(), n, tops.data());
  const float top = *std::max_element(z.begin(), z.end());
  const int kept =
      ix::cpu::filter(z.data(), n, top, {c.top_k, float(c.top_p), float(c.min_p)},
                      {tops.data(), copy.data(), masses.data(), entries.data()}, [](int chunks, auto body) {
                        for (int i = 0; i < chunks; i++) body(i);
                      });
  double total = 0;
  for (int i = 0; i < kept; i++) total += entries[i].weight;
  for (int i = 0; i < kept; i++) out[entries[i].token] = entries[i].weight / total;
  return out;
}

static void test_golden() {
  std::ifstream file(INFERX_FIXTURES "/sampling.txt");
  CHECK(bool(file), "test/fixtures/sampling.txt is missing");
  std::map<std::string, std::pair<std::vector<double>, std::vector<int>>> vectors;
  int cases = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string kind, name;
    in >> kind >> name;
    if (kind == "vector") {
      auto& [logits, previous] = vectors[name];
      logits.resize(size_t(number(in)));
      for (double& v : logits) v = number(in);
      previous.resize(size_t(number(in)));
      for (int& v : previous) v = int(number(in));
    }
    if (kind != "case") continue;
    Case c;
    c.id = name;
    in >> c.vector >> c.temperature >> c.top_k >> c.top_p >> c.min_p >> c.repetition >> c.frequency >> c.presence;
    const auto& [logits, previous] = vectors[c.vector];
    const int n = int(logits.size());
    for (int i = int(number(in)); i > 0; i--) {
      const int token = int(number(in));
      c.bias.push_back({token, float(number(in))});
    }
    for (int i = 0; i < n; i++) c.processed.push_back(number(in));
    for (int i = 0; i < n; i++) c.probs.push_back(number(in));
    CHECK(bool(in), "case %s is cut off", c.id.c_str());
    cases++;

    // the adjusted logits, in double, for the filter alone
    std::vector<double> scaled = logits;
    std::map<int, int> counts;
    for (int t : previous) counts[t]++;
    for (auto [t, v] : c.bias) scaled[t] += v;
    for (auto [t, times] : counts) {
      scaled[t] = float(scaled[t] < 0 ? scaled[t] * c.repetition : scaled[t] / c.repetition);
      scaled[t] -= c.frequency * times + c.presence;
    }
    for (double& v : scaled) v = float(v) / float(c.temperature);
    std::vector<double> ours = filtered(c, scaled), theirs = c.probs;
    const bool ties = c.vector == "ties" || c.vector == "flat" || c.vector == "neginf";
    if (ties) std::sort(ours.begin(), ours.end()), std::sort(theirs.begin(), theirs.end());
    for (int i = 0; i < n; i++)
      CHECK(std::fabs(ours[i] - theirs[i]) < 1e-6, "case %s: probability %d is %.8g, expected %.8g", c.id.c_str(), i,
            ours[i], theirs[i]);
    if (ties && c.top_p < 1) continue;  // which of several equals stays is a matter of taste

    // the whole kernel: many seeds, each draw by its definition over the expected logits
    const int rows = 64;
    Step step(rows, n, 1, rows);
    for (int s = 0; s < rows; s++) {
      for (int v = 0; v < n; v++) step.logits.at(s, v) = float(logits[v]);
      for (int t : previous) step.history.at(s, t) = (step.history.at(s, t) + 1) | 0x80000000u;
      step.row_state[s] = s;
      step.position[s] = 100 + s;
      step.temperature[s] = float(c.temperature), step.top_k[s] = c.top_k, step.top_p[s] = float(c.top_p),
      step.min_p[s] = float(c.min_p);
      step.repetition[s] = float(c.repetition), step.frequency[s] = float(c.frequency),
      step.presence[s] = float(c.presence);
      for (auto [t, v] : c.bias)
        step.bias_token.push_back(t), step.bias_value.push_back(v / 2), step.bias_token.push_back(t),
            step.bias_value.push_back(v / 2);
      step.bias_start[s + 1] = int(step.bias_token.size());
    }
    step.temperature[rows - 1] = 0;
    const Table<uint32_t> before = step.history;
    step.run();
    for (int s = 0; s < rows - 1; s++) {
      double margin;
      const int expected = step.drawn(s, c.processed, &margin), got = step.token.at(s, 0);
      if (margin > 1e-5)
        CHECK(got == expected, "case %s seed %d: token %d, expected %d", c.id.c_str(), s, got, expected);
      for (int v = 0; v < n; v++)
        CHECK(step.history.at(s, v) == before.at(s, v) + (v == got), "history of token %d", v);
    }
    // temperature 0 looks at the adjusted logits before any filter: the best of them, whatever top_k and top_p say
    const int greedy = int(std::max_element(scaled.begin(), scaled.end()) - scaled.begin());
    CHECK(step.token.at(rows - 1, 0) == greedy, "case %s greedy: %d, expected %d", c.id.c_str(),
          step.token.at(rows - 1, 0), greedy);
  }
  CHECK(cases > 200, "%d cases", cases);
}

// Large rows: every filter against a full sort, alone and beside others, on 1, 2 and 5 threads.
static void test_large() {
  Random random(3);
  struct Setting {
    float temperature;
    int top_k;
    float top_p, min_p;
  };
  const Setting settings[] = {
      {0, 0, 1, 0},         {1, 0, 1, 0},    {0.7f, 40, 1, 0},   {1, 0, 0.9f, 0},    {0.8f, 50, 0.95f, 0.05f},
      {1.5f, 0, 0.999f, 0}, {2, 0, 1, 0.1f}, {1, 8000, 1, 0},    {1, 8000, 0.5f, 0}, {1, 0, 1e-6f, 0},
      {1, 0, 0.7f, 0.3f},   {1, 1, 1, 0},    {5, 0, 0.9999f, 0}, {1, 0, 0, 0},       {1, 0, 0.5f, 1.0f},
      {1e-30f, 0, 1, 0}};
  constexpr int kNumSettings = sizeof settings / sizeof *settings;
  for (int columns : {3, 509, 20011})
    for (float spread : {1.0f, 4.0f, 0.0f}) {
      Step step(kNumSettings, columns, 20);
      for (int s = 0; s < kNumSettings; s++) {
        for (int v = 0; v < columns; v++)
          step.logits.at(s, v) = std::round(random.gauss() * spread * 64) / 64;  // with ties
        step.temperature[s] = settings[s].temperature, step.top_k[s] = settings[s].top_k,
        step.top_p[s] = settings[s].top_p, step.min_p[s] = settings[s].min_p;
        step.num_logprobs[s] = s % 3 == 0 ? -1 : s;
        step.sample_index[s] = s;
      }
      step.run(1);
      const Ints tokens = step.token, top_tokens = step.top_tokens;
      const Floats logprobs = step.logprob, top_logprobs = step.top_logprobs;
      for (int threads : {2, 5, 40}) {
        step.run(threads);
        CHECK(step.token.data == tokens.data && step.top_tokens.data == top_tokens.data &&
                  !std::memcmp(step.logprob.data.data(), logprobs.data.data(), logprobs.data.size() * 4) &&
                  !std::memcmp(step.top_logprobs.data.data(), top_logprobs.data.data(), top_logprobs.data.size() * 4),
              "sample on %d threads", threads);
      }
      for (int s = 0; s < kNumSettings; s++) {
        std::vector<int> order(columns);
        for (int v = 0; v < columns; v++) order[v] = v;
        std::stable_sort(order.begin(), order.end(),
                         [&](int a, int b) { return step.logits.at(s, a) > step.logits.at(s, b); });
        double all = 0;
        for (int v = 0; v < columns; v++) all += std::exp(double(step.logits.at(s, v)));
        const auto logprob = [&](int v) { return step.logits.at(s, v) - std::log(all); };
        const int wanted = step.num_logprobs[s];
        for (int j = 0; j < 20; j++) {
          const bool used = j < std::min(wanted, columns);
          CHECK(top_tokens.at(s, j) == (used ? order[j] : -1), "row %d of %d: likely token %d is %d", s, columns, j,
                top_tokens.at(s, j));
          CHECK(std::fabs(top_logprobs.at(s, j) - (used ? logprob(order[j]) : 0)) < 5e-6, "its log-probability %g",
                top_logprobs.at(s, j));
        }
        CHECK(std::fabs(logprobs.at(s, 0) - (wanted >= 0 ? logprob(tokens.at(s, 0)) : 0)) < 5e-6, "log-probability %g",
              logprobs.at(s, 0));

        const Setting& f = settings[s];
        if (f.temperature == 0 || f.top_k == 1 || f.temperature < 1e-20f || f.top_p == 0) {
          const bool first = f.temperature == 0 || f.top_p == 0;  // the others may draw among equals
          CHECK(first ? tokens.at(s, 0) == order[0] : step.logits.at(s, tokens.at(s, 0)) == step.logits.at(s, order[0]),
                "row %d: token %d", s, tokens.at(s, 0));
          continue;
        }
        std::vector<double> processed(columns, -INFINITY), weight;
        int kept = columns;
        if (f.top_k > 0 && f.top_k < columns)
          for (kept = f.top_k;
               kept < columns && step.logits.at(s, order[kept]) == step.logits.at(s, order[f.top_k - 1]);)
            kept++;
        double mass = 0, sum = 0, closest = 1;
        for (int i = 0; i < kept; i++) {
          weight.push_back(std::exp(double(step.logits.at(s, order[i]) / f.temperature) -
                                    double(step.logits.at(s, order[0]) / f.temperature)));
          mass += weight.back();
        }
        for (int i = 0; i < kept; sum += weight[i++]) {
          if (f.top_p < 1) closest = std::min(closest, std::fabs(sum / mass - f.top_p));
          if (f.min_p > 0) closest = std::min(closest, std::fabs(weight[i] - f.min_p) + (weight[i] == 1));
          if ((f.top_p == 1 || sum < double(f.top_p) * mass || i == 0) && weight[i] >= f.min_p)
            processed[order[i]] = step.logits.at(s, order[i]) / f.temperature;
        }
        double margin;
        const int expected = step.drawn(s, processed, &margin);
        if (margin > 1e-5 && closest > 1e-6)
          CHECK(tokens.at(s, 0) == expected, "row %d of %d (spread %g): token %d, expected %d", s, columns, spread,
                tokens.at(s, 0), expected);
      }
    }
}

static void test_mask_and_target() {
  const int columns = 70;
  Step step(6, columns, 3);
  Random random(4);
  for (int s = 0; s < 6; s++)
    for (int v = 0; v < columns; v++) step.logits.at(s, v) = random.gauss();
  step.masked = true;
  step.mask = Table<uint32_t>(
      2, 3, [](int r, int c) { return r == 0 ? (c == 2 ? 1u << 4 : 0u) : 0u; });  // row 0 allows token 68, row 1 none
  step.mask_row = {0, 1, -1, 0, 0, -1};
  step.temperature = {0, 0, 0, 1, 1, 1};
  step.top_p = {1, 1, 1, 1, 0.5f, 1};
  step.bias_token = {68, 3, 3, -5, 70};  // outside the row: no effect
  step.bias_value = {-100, 50, 50, 1, 1};
  step.bias_start = {0, 1, 3, 5, 5, 5, 5};
  step.num_logprobs = {0, 2, 1, 0, 0, 2};
  step.target = {-1, -1, -1, -1, -1, 12};
  step.row_state = {-1, -1, -1, 0, -1, 1};
  step.run();
  CHECK(step.token.at(0, 0) == 68 && step.token.at(3, 0) == 68 && step.token.at(4, 0) == 68, "masked: %d %d %d",
        step.token.at(0, 0), step.token.at(3, 0), step.token.at(4, 0));
  CHECK(step.token.at(1, 0) == 0, "all masked: %d", step.token.at(1, 0));
  CHECK(step.token.at(5, 0) == 12, "target: %d", step.token.at(5, 0));
  for (int v = 0; v < columns; v++)
    CHECK(step.history.at(0, v) == (v == 68) && step.history.at(1, v) == 0, "history of %d", v);

  // broken rows: NaN never wins, a row of nothing gives token 0 with log-probability -infinity
  for (int columns : {5, 9001}) {
    Step odd(12, columns, 3);
    for (int s = 0; s < 12; s++) {
      odd.temperature[s] = s % 3 ? 1 : 0;
      odd.top_k[s] = s % 3 == 2 ? 2 : 0;
      odd.num_logprobs[s] = 3;
      for (int v = 0; v < columns; v++)
        odd.logits.at(s, v) = s < 3 ? NAN : s < 6 ? -INFINITY : v == columns - 2 ? 1 : s < 9 ? NAN : -INFINITY;
    }
    odd.run();
    for (int s = 0; s < 12; s++) {
      const bool nothing = s < 6;
      CHECK(odd.token.at(s, 0) == (nothing ? 0 : columns - 2), "odd row %d: token %d", s, odd.token.at(s, 0));
      CHECK(nothing ? odd.logprob.at(s, 0) == -INFINITY : std::fabs(odd.logprob.at(s, 0)) < 1e-6, "odd row %d: %g", s,
            odd.logprob.at(s, 0));
      CHECK(odd.top_tokens.at(s, 0) == (nothing ? -1 : columns - 2) && odd.top_tokens.at(s, 1) == -1,
            "odd row %d: likely %d %d", s, odd.top_tokens.at(s, 0), odd.top_tokens.at(s, 1));
    }
  }
  Step none(0, 100);
  none.run();
}

int main() {
  test_philox();
  test_golden();
  test_large();
  test_mask_and_target();
  return report();
}
