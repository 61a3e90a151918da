// The KV cache and attention of the instruction set that isa_table() picks: against double arithmetic on what the cache
// holds, and bit for bit the same for a sequence alone, beside others, token by token, in one prompt, on any threads.
#include <algorithm>

#include "kernel_call.h"

using namespace test;

static float to_bf16(float x) {
  uint32_t u;
  std::memcpy(&u, &x, 4);
  u = (u + 0x7FFF + (u >> 16 & 1)) & 0xFFFF0000u;
  std::memcpy(&x, &u, 4);
  return x;
}

// A paged cache of two layers, of which the second is used, full of NaN where nothing was stored.
struct Cache {
  bool bf16;
  int blocks, tokens, heads, width;
  std::vector<uint32_t> words;
  Cache(bool bf16, int blocks, int tokens, int heads, int width)
      : bf16(bf16),
        blocks(blocks),
        tokens(tokens),
        heads(heads),
        width(width),
        words(size_t(blocks) * 2 * layer_words(), 0xFFFFFFFFu) {}
  size_t layer_words() const { return size_t(2) * heads * width * tokens / (bf16 ? 2 : 1); }
  operator ix_tensor() {
    return {words.data() + layer_words(), 4, {blocks, tokens, heads, width}, int64_t(2 * layer_words() * 4)};
  }
  // What is stored, by the layout's description in docs/plan.md.
  float value(bool is_v, int block, int slot, int head, int d) const {
    const size_t start =
        (size_t(block) * 2 + 1) * layer_words() + (size_t(2) * head + is_v) * width * tokens / (bf16 ? 2 : 1);
    if (!bf16) {
      float f;
      std::memcpy(&f, &words[start + (is_v ? size_t(slot) * width + d : size_t(d) * tokens + slot)], 4);
      return f;
    }
    const uint32_t w =
        is_v ? words[start + size_t(slot / 2) * width + d] : words[start + size_t(d / 2) * tokens + slot];
    const uint32_t bits = (is_v ? slot : d) % 2 ? w & 0xFFFF0000u : w << 16;
    float f;
    std::memcpy(&f, &bits, 4);
    return f;
  }
};

struct Shape {
  bool bf16;
  int tokens, kv_heads, group, width, context, window;
  float softcap;
  bool sinks;
};

struct Sequence {
  Floats q, k, v;
  std::vector<int32_t> blocks;
};

class Scene {
 public:
  Scene(const Shape& s, uint64_t seed, std::vector<int> contexts)
      : s_(s), random_(seed), heads_(s.kv_heads * s.group), type_(s.bf16 ? "kv_bf16" : "kv_f32") {
    int total = 0;
    for (int c : contexts) total += (c + s.tokens - 1) / s.tokens;
    num_blocks_ = total + 3;
    std::vector<int> order(num_blocks_);
    for (int i = 0; i < num_blocks_; i++) order[i] = i;
    for (int i = num_blocks_ - 1; i > 0; i--) std::swap(order[i], order[random_.below(i + 1)]);
    const auto noise = [&](int, int) { return random_.gauss(); };
    for (int c : contexts) {
      Sequence q{Floats(c, heads_ * s.width, noise),
                 Floats(c, s.kv_heads * s.width, noise),
                 Floats(c, s.kv_heads * s.width, noise),
                 {}};
      for (int b = 0; b * s.tokens < c; b++) q.blocks.push_back(order.back()), order.pop_back();
      sequences_.push_back(std::move(q));
    }
    for (int h = 0; h < heads_; h++) sinks_.push_back(random_.gauss());
  }

  // Runs steps: each step is a list of (sequence, new tokens). Returns every sequence's outputs.
  std::vector<Floats> run(const std::vector<std::vector<std::pair<int, int>>>& steps, int threads) {
    Cache cache(s_.bf16, num_blocks_, s_.tokens, s_.kv_heads, s_.width);
    std::vector<int> done(sequences_.size(), 0);
    std::vector<Floats> out;
    for (const Sequence& q : sequences_) out.emplace_back(q.q.rows, q.q.cols);
    for (const auto& step : steps) {
      std::vector<int32_t> start{0}, context, row, slots;
      int total = 0, cols = 1;
      for (auto [seq, n] : step) total += n, cols = std::max(cols, int(sequences_[seq].blocks.size()));
      Floats q(total, heads_ * s_.width), k(total, s_.kv_heads * s_.width), v(total, s_.kv_heads * s_.width),
          y(total, q.cols);
      Ints table(int(step.size()), cols, [](int, int) { return -1; });
      for (size_t i = 0; i < step.size(); i++) {
        const auto [seq, n] = step[i];
        const Sequence& from = sequences_[seq];
        const int table_row = int(step.size() - 1 - i);
        for (int t = 0; t < n; t++) {
          const int position = done[seq] + t, at = start.back() + t;
          for (int c = 0; c < q.cols; c++) q.at(at, c) = from.q.at(position, c);
          for (int c = 0; c < k.cols; c++) k.at(at, c) = from.k.at(position, c), v.at(at, c) = from.v.at(position, c);
          slots.push_back(from.blocks[position / s_.tokens] * s_.tokens + position % s_.tokens);
        }
        const int first = s_.window ? std::max(0, done[seq] - s_.window + 1) / s_.tokens : 0;  // blocks before are gone
        for (int b = first; b * s_.tokens < done[seq] + n; b++) table.at(table_row, b) = from.blocks[b];
        done[seq] += n;
        start.push_back(start.back() + n);
        context.push_back(done[seq]);
        row.push_back(table_row);
      }
      call(find("kv_write", type_), {cache, k, v, list(slots), cache}, {}, threads);
      call(find("attention", type_),
           {q, cache, list(start), list(context), list(row), table, s_.sinks ? list(sinks_) : omitted(), y},
           {integer(heads_), real(scale()), integer(s_.window), real(s_.softcap)}, threads);
      CHECK(y.padding_kept(), "attention wrote to padding");
      for (size_t i = 0; i < step.size(); i++)
        for (int t = 0; t < step[i].second; t++)
          for (int c = 0; c < y.cols; c++)
            out[step[i].first].at(context[i] - step[i].second + t, c) = y.at(start[i] + t, c);
    }
    check_cache(cache, done);
    return out;
  }

  // Against double arithmetic on the values that the cache holds.
  void check(const Floats& y, int seq, double tolerance) const {
    const Sequence& from = sequences_[seq];
    const auto stored = [&](float x) { return s_.bf16 ? to_bf16(x) : x; };
    for (int t = 0; t < y.rows; t++)
      for (int h = 0; h < heads_; h++) {
        const int kv = h / s_.group * s_.width, first = s_.window ? std::max(0, t - s_.window + 1) : 0;
        std::vector<double> p;
        double top = s_.sinks ? sinks_[h] : -INFINITY, error = 0, size = 0;
        for (int j = first; j <= t; j++) {
          double sum = 0;
          for (int d = 0; d < s_.width; d++)
            sum += double(from.q.at(t, h * s_.width + d)) * stored(from.k.at(j, kv + d));
          sum *= float(scale());
          if (s_.softcap > 0) sum = s_.softcap * std::tanh(sum / s_.softcap);
          p.push_back(sum);
          top = std::max(top, sum);
        }
        double total = s_.sinks ? std::exp(sinks_[h] - top) : 0;
        for (double& e : p) total += e = std::exp(e - top);
        for (int d = 0; d < s_.width; d++) {
          double sum = 0, magnitude = 0;
          for (int j = first; j <= t; j++) {
            const double product = p[j - first] * stored(from.v.at(j, kv + d)) / total;
            sum += product, magnitude += std::fabs(product);
          }
          error += std::pow(y.at(t, h * s_.width + d) - sum, 2), size += magnitude * magnitude;
        }
        CHECK(std::sqrt(error / size) < tolerance, "attention %s: token %d head %d: relative error %.3g",
              describe().c_str(), t, h, std::sqrt(error / size));
      }
  }

  std::string describe() const {
    char text[160];
    std::snprintf(text, sizeof text, "%s tokens %d, %d x %d heads of %d, window %d, softcap %g, sinks %d", type_,
                  s_.tokens, s_.kv_heads, s_.group, s_.width, s_.window, s_.softcap, s_.sinks);
    return text;
  }

 private:
  double scale() const { return 1.3 / std::sqrt(double(s_.width)); }
  void check_cache(const Cache& cache, const std::vector<int>& done) const {
    long wrong = 0;
    for (size_t i = 0; i < sequences_.size(); i++)
      for (int t = 0; t < done[i]; t++)
        for (int h = 0; h < s_.kv_heads; h++)
          for (int d = 0; d < s_.width; d++) {
            const int block = sequences_[i].blocks[t / s_.tokens], slot = t % s_.tokens;
            const float k = sequences_[i].k.at(t, h * s_.width + d), v = sequences_[i].v.at(t, h * s_.width + d);
            wrong += cache.value(false, block, slot, h, d) != (s_.bf16 ? to_bf16(k) : k);
            wrong += cache.value(true, block, slot, h, d) != (s_.bf16 ? to_bf16(v) : v);
          }
    CHECK(wrong == 0, "kv_write %s: %ld values differ", describe().c_str(), wrong);
  }

  Shape s_;
  Random random_;
  int heads_, num_blocks_;
  const char* type_;
  std::vector<Sequence> sequences_;
  std::vector<float> sinks_;
};

static bool same(const Floats& a, const Floats& b) {
  for (int r = 0; r < a.rows; r++)
    if (std::memcmp(&a.data[size_t(r) * a.stride], &b.data[size_t(r) * b.stride], size_t(a.cols) * 4)) return false;
  return true;
}

static void test_shape(const Shape& s, uint64_t seed) {
  Scene scene(s, seed, {s.context, 45, 1, 300});
  const int n = s.context;
  const bool rounded =
      s.bf16 && !std::strcmp(ix::cpu::isa_table().name, "avx512");  // q and probabilities in bf16 as well
  const std::vector<Floats> whole = scene.run({{{0, n}}, {{1, 45}, {2, 1}, {3, 300}}}, 1);
  for (int i = 0; i < 4; i++) scene.check(whole[i], i, rounded ? 8e-3 : 2e-6);

  std::vector<std::vector<std::pair<int, int>>> one_by_one, mixed;
  for (int t = 0; t < n; t++) one_by_one.push_back({{0, 1}});
  CHECK(same(scene.run(one_by_one, 2)[0], whole[0]), "token by token: %s", scene.describe().c_str());
  // chunks of odd sizes beside other sequences, which decode
  int at[4] = {};
  const int limit[4] = {n, 45, 1, 300}, step[4] = {37, 1, 1, 101};
  for (bool more = true; more;) {
    more = false;
    std::vector<std::pair<int, int>> parts;
    for (int i : {1, 0, 3, 2}) {
      const int count = std::min(step[i], limit[i] - at[i]);
      if (count == 0) continue;
      parts.push_back({i, count});
      at[i] += count;
      more = true;
    }
    if (more) mixed.push_back(parts);
  }
  for (int threads : {1, 3, 16}) {
    const std::vector<Floats> out = scene.run(mixed, threads);
    for (int i = 0; i < 4; i++)
      CHECK(same(out[i], whole[i]), "beside others, sequence %d, %d threads: %s", i, threads, scene.describe().c_str());
  }
}

// A context of many splits, one query: more units than slots, so that several rounds run.
static void test_long() {
  for (bool bf16 : {false, true}) {
    const Shape s{bf16, 32, 1, 2, 8, 9000, 0, 0, false};
    Scene scene(s, 9, {s.context});
    const std::vector<Floats> one = scene.run({{{0, s.context}}}, 1);
    for (int threads : {2, 4}) {
      CHECK(same(scene.run({{{0, s.context - 1}}, {{0, 1}}}, threads)[0], one[0]), "long context, %d threads", threads);
    }
    CHECK(same(scene.run({{{0, s.context - 3}}, {{0, 3}}}, 2)[0], one[0]), "long context, 3 new tokens");
  }
}

static void test_fused() {
  Random random(5);
  for (bool bf16 : {false, true})
    for (int rows : {0, 1, 3, 70})
      for (int interleaved : {0, 1})
        for (int norm : {0, 1}) {
          const int width = 24, half = 8, heads = 6, kv_heads = 2, tokens = 32, blocks = 5;
          const char* type = bf16 ? "kv_bf16" : "kv_f32";
          const auto noise = [&](int, int) { return random.gauss(); };
          Floats q(rows, heads * width, noise), k(rows, kv_heads * width, noise), v(rows, kv_heads * width, noise),
              table(rows, 2 * half, noise);
          std::vector<float> qw(width), kw(width);
          for (int i = 0; i < width; i++) qw[i] = random.gauss(), kw[i] = random.gauss();
          std::vector<int32_t> slots;
          for (int t = 0; t < rows; t++) slots.push_back(t % 11 == 5 ? -1 : (t + 19) % (blocks * tokens));
          Cache fused(bf16, blocks, tokens, kv_heads, width), apart(bf16, blocks, tokens, kv_heads, width);
          Floats y(rows, q.cols), qn(rows, q.cols), kn(rows, k.cols), qr(rows, q.cols), kr(rows, k.cols);
          call(find("qk_norm_rope_kv_write", type),
               {fused, q, k, v, table, list(slots), norm ? list(qw) : omitted(), norm ? list(kw) : omitted(), y, fused},
               {integer(heads), integer(interleaved), real(1e-6)});
          if (norm) call("rms_norm", {q, list(qw), qn}, {integer(heads), real(1e-6)});
          if (norm) call("rms_norm", {k, list(kw), kn}, {integer(kv_heads), real(1e-6)});
          call("rope", {norm ? qn : q, table, qr}, {integer(heads), integer(interleaved)});
          call("rope", {norm ? kn : k, table, kr}, {integer(kv_heads), integer(interleaved)});
          call(find("kv_write", type), {apart, kr, v, list(slots), apart}, {});
          CHECK(same(y, qr) && y.padding_kept(), "qk_norm_rope_kv_write: q, %d rows", rows);
          CHECK(fused.words == apart.words, "qk_norm_rope_kv_write: cache, %s, %d rows", type, rows);
        }
}

int main() {
  const Shape shapes[] = {
      {false, 16, 2, 1, 24, 70, 0, 0, false},  {false, 32, 1, 3, 96, 600, 0, 0, false},
      {false, 32, 3, 2, 64, 90, 40, 0, false}, {false, 64, 1, 16, 128, 80, 5, 0, true},
      {false, 4, 1, 1, 2, 300, 0, 20, true},   {false, 128, 1, 1, 256, 530, 290, 0, false},
      {true, 32, 2, 1, 24, 70, 0, 0, false},   {true, 32, 1, 3, 96, 600, 0, 0, false},
      {true, 32, 3, 2, 64, 90, 40, 0, false},  {true, 32, 1, 16, 128, 80, 5, 0, true},
      {true, 32, 1, 7, 80, 75, 0, 20, true},   {true, 32, 1, 1, 256, 530, 290, 0, false},
      {true, 32, 2, 1, 2, 300, 1, 0, false},   {true, 32, 2, 13, 50, 60, 0, 0, false},
  };
  uint64_t seed = 1;
  for (const Shape& s : shapes) test_shape(s, seed++);
  test_long();
  test_fused();
  return report();
}
