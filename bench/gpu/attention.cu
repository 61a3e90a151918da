// Decode attention on the GPU: against float64 over widths, groups, windows, odd lengths and steps that hold prompts, too; the bits of the
// deterministic mode alone and beside others; then times with the fraction of the reading ceiling measured in the same run.
// Arguments: "small" checks a few small cases only (for compute-sanitizer).
#include <cmath>
#include <cstring>

#include "cuda/attention/decode.h"
#include "cuda/kv/cache.h"
#include "measure.cuh"

using namespace ix::cuda;
using bf16 = __nv_bfloat16;

namespace {
struct Shape {
  int width, kv_heads, group, block = 64, window = 0;
  float softcap = 0;
  bool sinks = false;
};

// A block a (token, head); q rounded as the kernel does.
__global__ void reference(const float* q, int64_t stride, KvCache<bf16> cache, const int* start, const int* context, const int* row, const int* table, int columns, const float* sinks, int sequences,
                          int group, float scale, int window, float softcap, double* scores, int longest, float* out) {
  const int token = blockIdx.x, head = blockIdx.y, heads = gridDim.y, width = cache.width;
  int s = 0;
  while (start[s + 1] <= token) s++;
  const int last = context[s] - (start[s + 1] - token), first = window > 0 ? max(0, last - window + 1) : 0;
  double* mine = scores + (size_t(token) * heads + head) * longest;
  auto k_of = [&](int p) { return cache.k(table[row[s] * columns + p / cache.tokens], head / group) + int64_t(p % cache.tokens) * width; };
  for (int p = first + threadIdx.x; p <= last; p += blockDim.x) {
    double sum = 0;
    for (int d = 0; d < width; d++) sum += double(__bfloat162float(__float2bfloat16_rn(q[token * stride + head * width + d]))) * double(__bfloat162float(k_of(p)[d]));
    sum *= scale;
    mine[p] = softcap > 0 ? softcap * tanh(sum / softcap) : sum;
  }
  __syncthreads();
  double top = sinks ? sinks[head] : -1e300, total = 0;
  for (int p = first; p <= last; p++) top = fmax(top, mine[p]);
  for (int p = first; p <= last; p++) total += exp(mine[p] - top);
  if (sinks) total += exp(sinks[head] - top);
  for (int d = threadIdx.x; d < width; d += blockDim.x) {
    double sum = 0;
    for (int p = first; p <= last; p++) sum += exp(mine[p] - top) * double(__bfloat162float(k_of(p)[cache.half() + d]));
    out[(size_t(token) * heads + head) * width + d] = float(sum / total);
  }
}

// NaN where no position of a sequence lies: stale tails, blocks that nobody owns, blocks that a window has left behind
__global__ void poison(KvCache<bf16> cache, const int* filled) {
  const int block = blockIdx.x, head = blockIdx.y;
  for (int i = filled[block] * cache.width + threadIdx.x; i < cache.tokens * cache.width; i += blockDim.x) cache.k(block, head)[i] = cache.k(block, head)[cache.half() + i] = NAN;
}

struct Mode {
  bool bf16_result = false, deterministic = false;
};

struct Case {
  ix_stream stream = new_stream();
  Shape s;
  int tokens = 0, sequences, columns = 1, blocks = 0, layers;
  std::vector<int> lengths;
  size_t layer;  // bytes of a layer of a block
  Memory<bf16> cache;
  Memory<float> q, y, sinks;
  Memory<int> start, context, row, table, filled;
  Memory<char> workspace{1};
  Memory<uint32_t> counters{kStreamCounters};
  std::vector<int> news;

  static int count_blocks(const std::vector<int>& lengths, int block) {
    int n = 3;
    for (int l : lengths) n += divide_up(l, block);
    return n;
  }
  static int count_tokens(const std::vector<int>& news) {
    int n = 0;
    for (int c : news) n += c;
    return n;
  }
  Case(Shape s, std::vector<int> lengths, std::vector<int> news, int layers)
      : s(s), tokens(count_tokens(news)), sequences(int(lengths.size())), blocks(count_blocks(lengths, s.block)), layers(layers), lengths(lengths),
        layer(size_t(2) * s.kv_heads * s.block * s.width * 2), cache(layer / 2 * layers * blocks), q(size_t(tokens) * stride()), y(size_t(tokens) * stride()), sinks(heads()),
        start(sequences + 1), context(sequences), row(sequences), table(size_t(sequences) * (columns = most_blocks())), filled(blocks), news(news) {
    cache.fill(2, 21), q.fill(2, 22), sinks.fill(2, 23);
    y.bytes(0xff), counters.bytes(0);
    stream.counters = counters.data;
    std::vector<int> order(blocks), starts{0}, rows(sequences), entries(table.count, -1), used(blocks, 0);
    for (int i = 0; i < blocks; i++) order[i] = i;
    for (int i = blocks - 1; i > 0; i--) std::swap(order[i], order[random_bits(i, 9) % (i + 1)]);
    int next = 0;
    for (int i = 0; i < sequences; i++) {
      starts.push_back(starts.back() + news[i]);
      rows[i] = sequences - 1 - i;
      const int oldest = s.window ? std::max(0, lengths[i] - news[i] - s.window + 1) / s.block : 0;  // blocks before it are gone
      for (int b = 0; b < divide_up(lengths[i], s.block); b++) {
        const int block = order[next++];
        if (b < oldest) continue;
        entries[size_t(rows[i]) * columns + b] = block;
        used[block] = std::min(s.block, lengths[i] - b * s.block);
      }
    }
    start.put(starts), context.put(lengths), row.put(rows), table.put(entries), filled.put(used);
    for (int l = 0; l < layers; l++) poison<<<dim3(blocks, s.kv_heads), 128>>>(view(l), filled.data);
    CHECK(cudaDeviceSynchronize());
  }
  ~Case() { cudaStreamDestroy(stream.handle); }
  int most_blocks() const { return divide_up(*std::max_element(lengths.begin(), lengths.end()), s.block); }
  int heads() const { return s.kv_heads * s.group; }
  int64_t stride() const { return (heads() * s.width + 31) / 32 * 32; }
  ix_tensor cache_tensor(int l) const { return {reinterpret_cast<char*>(cache.data) + layer * l, 4, {blocks, s.block, s.kv_heads, s.width}, int64_t(layer) * layers}; }
  KvCache<bf16> view(int l) const { return KvCache<bf16>(cache_tensor(l)); }
  float scale() const { return 1.0f / std::sqrt(float(s.width)); }
  // Sequences first ... first + count - 1 of the step, whose seq_start is `starts`.
  bool run(int l, Mode mode, const int* starts, int first, int count, int first_token, int count_tokens) {
    const int n = heads() * s.width;
    char* const result = reinterpret_cast<char*>(y.data) + first_token * stride() * (mode.bf16_result ? 2 : 4);
    const ix_tensor t[8] = {{q.data + first_token * stride(), 2, {count_tokens, n}, stride()}, cache_tensor(l),
                            {const_cast<int*>(starts), 1, {count}, 1},        {context.data + first, 1, {count}, 1},
                            {row.data + first, 1, {count}, 1},          {table.data, 2, {sequences, columns}, columns},
                            {s.sinks ? sinks.data : nullptr, 1, {heads()}, 1}, {result, 2, {count_tokens, n}, stride()}};
    ix_attr attrs[4];
    attrs[0].i = heads(), attrs[1].f = scale(), attrs[2].i = s.window, attrs[3].f = s.softcap;
    ix_kernel_call call{t, attrs, nullptr};
    const size_t bytes = decode_attention_workspace(&call, mode.deterministic);
    if (bytes > workspace.count) {
      cudaFree(workspace.data);
      CHECK(cudaMalloc(&workspace.data, workspace.count = bytes));
      workspace.bytes(0xff);
    }
    call.workspace = workspace.data;
    const bool served = decode_attention(&stream, &call, mode.bf16_result, mode.deterministic);
    check_launch(&stream, "decode_attention");
    return served;
  }
  bool run(int l, Mode mode) { return run(l, mode, start.data, 0, sequences, 0, tokens); }
  bool mine(int sequence) const { return news[sequence] <= kDecodeTokens; }

  bool check() {
    const int longest = *std::max_element(lengths.begin(), lengths.end());
    Memory<double> scores(size_t(tokens) * heads() * longest);
    Memory<float> out(size_t(tokens) * heads() * s.width);
    reference<<<dim3(tokens, heads()), 256>>>(q.data, stride(), view(layers - 1), start.data, context.data, row.data, table.data, columns, s.sinks ? sinks.data : nullptr, sequences, s.group, scale(),
                                              s.window, s.softcap, scores.data, longest, out.data);
    const std::vector<float> want = out.get();
    double worst = 0;
    bool same = true, untouched = true, alone = true;
    for (Mode mode : {Mode{false, false}, Mode{false, true}, Mode{true, false}, Mode{true, true}}) {
      std::vector<float> before;
      for (int pass = 0; pass < (mode.bf16_result ? 1 : 2); pass++) {  // counters are used again
        y.bytes(0xff);
        CHECK(cudaDeviceSynchronize());
        if (!run(layers - 1, mode)) return std::printf("FAILED refused width %d\n", s.width), false;
        const std::vector<float> got = y.get();
        const bf16* rounded = reinterpret_cast<const bf16*>(got.data());
        for (int r = 0, t = 0; r < sequences; r++)
          for (int j = 0; j < news[r]; j++, t++) {  // each token by itself: short and long ones differ in size
            double error = 0, norm = 0;
            for (int i = 0; i < heads() * s.width; i++) {
              const float g = mode.bf16_result ? __bfloat162float(rounded[t * stride() + i]) : got[t * stride() + i];
              const double w = want[size_t(t) * heads() * s.width + i], d = g - w;
              error += d * d, norm += w * w;
              if (!mine(r)) untouched &= std::isnan(g);
            }
            const double relative = std::sqrt(error / norm);
            if (mine(r) && !(relative <= worst)) worst = relative;
          }
        if (pass > 0) same &= std::memcmp(before.data(), got.data(), got.size() * sizeof(float)) == 0;
        before = got;
      }
      if (!mode.deterministic || mode.bf16_result) continue;
      y.bytes(0xff);
      Memory<int> starts(2);
      for (int r = 0, t = 0; r < sequences; t += news[r++]) {  // each sequence by itself
        if (!mine(r) || (r > 40 && r % 16 != 0)) continue;
        starts.put({0, news[r]});
        run(layers - 1, mode, starts.data, r, 1, t, news[r]);
        const std::vector<float> got = y.get();
        for (int j = t; j < t + news[r]; j++) alone &= std::memcmp(&before[j * stride()], &got[j * stride()], heads() * s.width * sizeof(float)) == 0;
      }
    }
    const bool good = worst < 7e-3 && same && untouched && alone && !stream.error[0];
    if (!good)
      std::printf("FAILED width %d kv %d group %d block %d window %d softcap %g sinks %d, %d tokens of %d sequences, longest %d: worst relative error %.2e, repeats %s, others' rows %s, alone %s %s\n", s.width,
                  s.kv_heads, s.group, s.block, s.window, s.softcap, s.sinks, tokens, sequences, longest, worst, same ? "equal" : "differ", untouched ? "kept" : "written", alone ? "equal" : "differs",
                  stream.error);
    return good;
  }
};

int check_all(bool small) {
  int bad = 0, done = 0;
  const auto check = [&](Shape s, const std::vector<int>& lengths, std::vector<int> news = {}) {
    if (news.empty()) news.assign(lengths.size(), 1);
    Case c(s, lengths, news, 2);
    bad += !c.check(), done++;
  };
  if (small) {
    check({128, 2, 4}, {1, 200, 1100, 64});
    check({80, 2, 3, 32, 100, 30.0f, true}, {300, 33}, {2, 3});
    check({256, 1, 8}, {130, 700});
    check({64, 1, 12}, {1700, 40, 700, 5}, {1, 9, 2, 0});
  } else {
    for (int width : {64, 80, 96, 128, 256}) {
      for (int length : {1, 15, 16, 17, 63, 64, 65, 127, 1000, 9000}) check({width, 2, 4}, {length});
      check({width, 8, 4}, {1, 700, 64, 65, 2100, 128, 9000, 3});
      for (int group : {1, 2, 3, 7, 8, 9, 16, 20}) check({width, 2, group}, {500, 33, 1400});
      for (int block : {16, 32, 128}) check({width, 2, 4, block}, {700, 31, 129});
      for (int window : {1, 50, 64, 1000}) check({width, 2, 4, 64, window}, {700, 31, 3000, 64});
      check({width, 2, 4, 16, 100}, {700, 31, 3000, 64});
      check({width, 2, 4, 64, 0, 20.0f, true}, {700, 31, 3000});
      check({width, 2, 4, 64, 200, 0, true}, {700, 31, 3000});
      check({width, 2, 4}, {700, 131, 3000, 64}, {2, 4, 1, 8});
      check({width, 2, 4, 64, 100}, {700, 131, 3000, 64}, {2, 4, 1, 8});
      std::vector<int> many(900);
      for (size_t i = 0; i < many.size(); i++) many[i] = 1 + random_bits(i, 3) % 300;
      check({width, 2, 2}, many);
      check({width, 2, 4}, {700, 131, 3000, 64, 20000, 9}, {20, 4, 0, 9, 8, 1});
      check({width, 2, 4, 64, 100}, {700, 131, 3000, 64, 300}, {20, 4, 9, 8, 200});
      std::vector<int> news(many.size());
      for (size_t i = 0; i < news.size(); i++) news[i] = many[i] > 100 ? many[i] % 50 == 0 ? 12 : 9 : random_bits(i, 4) % 8 == 0;
      check({width, 2, 1}, many, news);
      check({width, 1, 4}, {40, 50, 60}, {40, 9, 60});
    }
  }
  std::printf("decode attention: %d checks, %d failed\n", done, bad);
  return bad;
}

void times() {
  ix_stream stream = new_stream();
  const double ceiling = read_ceiling(stream);
  std::printf("reading ceiling %.2f TB/s\n%-44s%10s%10s%12s%15s\n", ceiling, "width, KV heads x group, sequences x tokens", "MB", "us", "TB/s, %", "deterministic");
  struct Time {
    Shape s;
    int sequences, length;
  };
  const Time all[] = {{{128, 8, 4}, 1, 1024}, {{128, 8, 4}, 8, 1024},   {{128, 8, 4}, 16, 1024}, {{128, 8, 4}, 32, 1024}, {{128, 8, 4}, 64, 1024}, {{128, 8, 4}, 128, 1024}, {{128, 8, 4}, 256, 1024},
                      {{128, 8, 4}, 1, 32768}, {{128, 8, 4}, 8, 4096}, {{64, 8, 4}, 64, 1024},  {{64, 8, 8}, 64, 1024},  {{80, 32, 1}, 64, 1024}, {{96, 32, 1}, 64, 1024},
                      {{128, 8, 8}, 64, 1024}, {{128, 4, 16}, 64, 1024}, {{256, 8, 2}, 64, 1024}, {{256, 4, 2}, 8, 4096},   {{256, 1, 8}, 64, 1024}};
  const auto measure = [](Case& c, Mode mode) {
    return graph_us(c.stream, std::max(c.layers, 16), [&](int i) {
      if (!c.run(i % c.layers, mode)) std::printf("FAILED refused\n"), std::exit(1);
    });
  };
  for (const Time& t : all) {
    const double mb = 4.0 * t.s.width * t.s.kv_heads * t.sequences * t.length / 1e6;
    Case c(t.s, std::vector<int>(t.sequences, t.length), std::vector<int>(t.sequences, 1), std::max(2, std::min(32, int(2000 / mb))));
    c.run(0, {false, true});  // the larger workspace
    const double us = measure(c, {}), fixed = measure(c, {false, true});
    std::printf("%4d, %2d x %2d, %3d x %-24d%10.1f%10.1f%8.2f, %2.0f%15.1f\n", t.s.width, t.s.kv_heads, t.s.group, t.sequences, t.length, mb, us, mb / us, 100 * mb / us / ceiling, fixed);
  }
  const auto steps = [&](const char* name, int prompts, int length, int others) {
    std::vector<int> lengths(prompts, length), news(prompts, length);
    lengths.resize(prompts + others, 64), news.resize(prompts + others, 1);
    Case c({128, 8, 4}, lengths, news, 2);
    c.run(0, {});
    std::printf("%-54s%10.1f\n", name, measure(c, {}));
  };
  steps("1 prompt of 8192: none to serve", 1, 8192, 0);
  steps("900 prompts of 9: none to serve", 900, 9, 0);
  steps("1 prompt of 8192 before 4095 x 64", 1, 8192, 4095);
}
}  // namespace

int main(int argc, char** argv) {
  const bool small = argc > 1 && !std::strcmp(argv[1], "small");
  const int bad = check_all(small);
  if (!small && !bad) times();
  return bad != 0;
}
