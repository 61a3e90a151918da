// Prompt attention on the GPU: against float64 over widths, groups, windows and odd lengths, cut into steps in several ways bit for bit, then times in
// TFLOP/s of the causal products. Arguments: "small" checks a few small cases only (for compute-sanitizer), "times" only times.
#include <cmath>
#include <cstring>
#include <memory>

#include "cuda/attention/decode.h"
#include "cuda/attention/prompt.h"
#include "measure.cuh"

using namespace ix::cuda;
using bf16 = __nv_bfloat16;

extern const ix_kernel ix_kernel_attention_bf16_cuda;

namespace {
struct Shape {
  int width, kv_heads, group, block = 64, window = 0;
  float softcap = 0;
  bool sinks = false;
};
struct Sequence {
  int context, tokens;
};
enum Kernel { kMma, kWgmma, kEntry };
const char* const kNames[] = {"mma", "wgmma", "entry"};

// A block a (token, head); q rounded as the kernels do.
__global__ void reference(const float* q, int64_t stride, KvCache<bf16> cache, const int* start, const int* context, const int* row, const int* table, int columns, const float* sinks, int group,
                          float scale, int window, float softcap, float* out) {
  extern __shared__ double scores[];
  const int token = blockIdx.x, head = blockIdx.y, heads = gridDim.y, width = cache.width;
  int s = 0;
  while (start[s + 1] <= token) s++;
  const int last = context[s] - (start[s + 1] - token), first = window > 0 ? max(0, last - window + 1) : 0;
  auto k_of = [&](int p) { return cache.k(table[row[s] * columns + p / cache.tokens], head / group) + int64_t(p % cache.tokens) * width; };
  for (int p = first + threadIdx.x; p <= last; p += blockDim.x) {
    double sum = 0;
    for (int d = 0; d < width; d++) sum += double(__bfloat162float(__float2bfloat16_rn(q[token * stride + head * width + d]))) * double(__bfloat162float(k_of(p)[d]));
    sum *= scale;
    scores[p - first] = softcap > 0 ? softcap * tanh(sum / softcap) : sum;
  }
  __syncthreads();
  double top = sinks ? sinks[head] : -1e300, total = 0;
  for (int p = first; p <= last; p++) top = fmax(top, scores[p - first]);
  __syncthreads();
  for (int p = first + threadIdx.x; p <= last; p += blockDim.x) scores[p - first] = exp(scores[p - first] - top);
  __syncthreads();
  for (int p = first; p <= last; p++) total += scores[p - first];
  if (sinks) total += exp(sinks[head] - top);
  for (int d = threadIdx.x; d < width; d += blockDim.x) {
    double sum = 0;
    for (int p = first; p <= last; p++) sum += scores[p - first] * double(__bfloat162float(k_of(p)[cache.half() + d]));
    out[(size_t(token) * heads + head) * width + d] = float(sum / total);
  }
}

// NaN where no position of a sequence lies: stale tails, blocks that nobody owns, blocks that a window has left behind
__global__ void poison(KvCache<bf16> cache, const int* filled) {
  const int block = blockIdx.x, head = blockIdx.y;
  for (int i = filled[block] * cache.width + threadIdx.x; i < cache.tokens * cache.width; i += blockDim.x) cache.k(block, head)[i] = cache.k(block, head)[cache.half() + i] = NAN;
}

struct Case {
  ix_stream stream = new_stream();
  Shape s;
  std::vector<Sequence> sequences;
  int tokens = 0, longest = 0, parts, columns = 0, blocks = 3, layers;
  size_t layer = 0;  // bytes of a layer of a block
  std::unique_ptr<Memory<bf16>> cache;
  std::unique_ptr<Memory<float>> q, y;
  std::unique_ptr<Memory<int>> start, context, row, table;
  Memory<float> sinks;
  std::unique_ptr<Memory<char>> workspace;
  Memory<uint32_t> counters{kStreamCounters};

  Case(Shape s, std::vector<Sequence> all, int layers) : s(s), sequences(all), layers(layers), sinks(heads()) {
    for (const Sequence& q : all) tokens += q.tokens, longest = std::max(longest, q.context), blocks += divide_up(q.context, s.block);
    columns = divide_up(longest, s.block), layer = size_t(2) * s.kv_heads * s.block * s.width * 2;
    const auto make = [](auto& memory, size_t count) { memory.reset(new std::remove_reference_t<decltype(*memory)>(count)); };
    make(cache, layer / 2 * layers * blocks), make(q, size_t(tokens) * stride()), make(y, size_t(tokens) * stride());
    make(start, tokens + 1), make(context, tokens), make(row, tokens), make(table, all.size() * columns);
    cache->fill(2, 21), q->fill(2, 22), sinks.fill(2, 23);
    counters.bytes(0);
    stream.counters = counters.data;
    std::vector<int> order(blocks), entries(table->count, -1), used(blocks, 0);
    for (int i = 0; i < blocks; i++) order[i] = i;
    for (int i = blocks - 1; i > 0; i--) std::swap(order[i], order[random_bits(i, 9) % (i + 1)]);
    int next = 0;
    for (size_t i = 0; i < all.size(); i++) {
      const int oldest = s.window ? std::max(0, all[i].context - all[i].tokens - s.window + 1) / s.block : 0;  // entries before it may name anything
      for (int b = 0; b < divide_up(all[i].context, s.block); b++) {
        const int block = order[next++];
        entries[(all.size() - 1 - i) * columns + b] = block;
        if (b >= oldest) used[block] = std::min(s.block, all[i].context - b * s.block);
      }
    }
    table->put(entries);
    Memory<int> filled(blocks);
    filled.put(used);
    for (int l = 0; l < layers; l++) poison<<<dim3(blocks, s.kv_heads), 128>>>(view(l), filled.data);
    cut(tokens);
  }
  ~Case() { cudaStreamDestroy(stream.handle); }
  // Each sequence's new tokens in pieces of at most `size`, as if they were sequences that share a table row.
  void cut(int size) {
    std::vector<int> starts{0}, contexts, rows;
    for (size_t i = 0; i < sequences.size(); i++)
      for (int done = 0; done < sequences[i].tokens; done += size) {
        const int piece = std::min(size, sequences[i].tokens - done);
        starts.push_back(starts.back() + piece), rows.push_back(int(sequences.size() - 1 - i));
        contexts.push_back(sequences[i].context - sequences[i].tokens + done + piece);
      }
    start->put(starts), context->put(contexts), row->put(rows);
    parts = int(rows.size());
    CHECK(cudaDeviceSynchronize());
  }
  int heads() const { return s.kv_heads * s.group; }
  int64_t stride() const { return (heads() * s.width + 31) / 32 * 32; }
  ix_tensor cache_tensor(int l) const { return {reinterpret_cast<char*>(cache->data) + layer * l, 4, {blocks, s.block, s.kv_heads, s.width}, int64_t(layer) * layers}; }
  KvCache<bf16> view(int l) const { return KvCache<bf16>(cache_tensor(l)); }
  float scale() const { return 1.0f / std::sqrt(float(s.width)); }
  template <class Out = float>
  bool run(Kernel kernel, int l) {
    const int n = heads() * s.width;
    const ix_tensor t[8] = {{q->data, 2, {tokens, n}, stride()}, cache_tensor(l), {start->data, 1, {parts}, 1}, {context->data, 1, {parts}, 1}, {row->data, 1, {parts}, 1},
                            {table->data, 2, {int(sequences.size()), columns}, columns}, {s.sinks ? sinks.data : nullptr, 1, {heads()}, 1}, {y->data, 2, {tokens, n}, stride()}};
    if (kernel == kEntry) {
      ix_attr attrs[4];
      attrs[0].i = heads(), attrs[1].f = scale(), attrs[2].i = s.window, attrs[3].f = s.softcap;
      ix_kernel_call call{t, attrs, nullptr};
      if (!workspace) workspace.reset(new Memory<char>(ix_kernel_attention_bf16_cuda.workspace(&call, 1))), workspace->bytes(0xff);
      call.workspace = workspace->data;
      ix_kernel_attention_bf16_cuda.launch(&stream, &call);
      return true;
    }
    const Prompt<Out> p{Floats(t[0]), Rows<Out>(t[7]), Ints(t[5]), start->data, context->data, row->data, s.sinks ? sinks.data : nullptr, parts, s.group, s.window, 0, scale(), s.softcap};
    const bool served = kernel == kMma ? prompt_mma(&stream, current_gpu(), p, view(l), tokens) : prompt_wgmma(&stream, current_gpu(), p, view(l), tokens);
    check_launch(&stream, kNames[kernel]);
    return served;
  }
  std::vector<float> result(Kernel kernel) {
    y->bytes(0xff);
    CHECK(cudaDeviceSynchronize());
    if (!run(kernel, layers - 1)) std::printf("FAILED %s refused width %d\n", kNames[kernel], s.width);
    return y->get();
  }
  bool fail(Kernel kernel, const char* what, double value) {
    std::printf("FAILED %s: width %d kv %d group %d block %d window %d softcap %g sinks %d, %d tokens of %zu sequences, longest %d: %s %.2e %s\n", kNames[kernel], s.width, s.kv_heads, s.group, s.block,
                s.window, s.softcap, s.sinks, tokens, sequences.size(), longest, what, value, stream.error);
    return false;
  }
  bool check(Kernel kernel, const std::vector<float>& want) {
    double worst = 0;
    const std::vector<float> got = result(kernel);
    for (int t = 0; t < tokens; t++)
      for (int h = 0; h < heads(); h++) {
        double error = 0, norm = 0;
        for (int i = h * s.width; i < (h + 1) * s.width; i++) {
          const double w = want[size_t(t) * heads() * s.width + i], d = got[t * stride() + i] - w;
          error += d * d, norm += w * w;
        }
        const double relative = std::sqrt(error / norm);
        if (!(relative <= worst)) worst = relative;
      }
    if (kernel != kEntry) {  // as bf16: the same, rounded
      run<bf16>(kernel, layers - 1);
      const std::vector<float> raw = y->get();
      const bf16* narrow = reinterpret_cast<const bf16*>(raw.data());
      for (int t = 0; t < tokens; t++)
        for (int i = 0; i < heads() * s.width; i++)
          if (__bfloat162float(narrow[t * stride() + i]) != __bfloat162float(__float2bfloat16_rn(got[t * stride() + i]))) return fail(kernel, "another bf16 result at token", t);
    }
    for (int pass = 0; pass < 2; pass++)
      if (std::memcmp(got.data(), result(kernel).data(), got.size() * sizeof(float))) return fail(kernel, "another result in pass", pass + 1);
    return worst < 1e-2 && !stream.error[0] ? true : fail(kernel, "worst relative error", worst);
  }
  bool check(bool wgmma) {
    Memory<float> out(size_t(tokens) * heads() * s.width);
    CHECK(cudaFuncSetAttribute(reference, cudaFuncAttributeMaxDynamicSharedMemorySize, longest * 8));
    reference<<<dim3(tokens, heads()), 128, longest * 8>>>(q->data, stride(), view(layers - 1), start->data, context->data, row->data, table->data, columns, s.sinks ? sinks.data : nullptr, s.group,
                                                           scale(), s.window, s.softcap, out.data);
    CHECK(cudaGetLastError());
    const std::vector<float> want = out.get();
    bool good = check(kMma, want);
    if (wgmma) good &= check(kWgmma, want);
    return good & check(kEntry, want);
  }
  // The same tokens in one step and in pieces
  bool check_cuts(Kernel kernel) {
    cut(tokens);
    const std::vector<float> whole = result(kernel);
    bool good = true;
    for (int size : {1, 7, 33, 100, 256}) {
      cut(size);
      if (std::memcmp(whole.data(), result(kernel).data(), whole.size() * sizeof(float))) good = fail(kernel, "another result in pieces of", size);
    }
    return good;
  }
};

int check_all(bool small) {
  int bad = 0, done = 0;
  const auto check = [&](Shape s, const std::vector<Sequence>& sequences) {
    Case c(s, sequences, 2);
    bad += !c.check(s.block == 64 && (s.width % 64 == 0 || s.width == 80 || s.width == 96)), done++;
  };
  const auto check_cuts = [&](Shape s) {
    Case c(s, {{1000, 700}, {150, 150}, {333, 20}}, 2);
    bad += !c.check_cuts(kMma), done++;
    if (s.width % 64 == 0 || s.width == 80 || s.width == 96) bad += !c.check_cuts(kWgmma), done++;
  };
  if (small) {
    check({128, 2, 4}, {{200, 200}, {300, 50}, {64, 1}});
    check({80, 1, 3, 64, 100, 30.0f, true}, {{300, 130}, {33, 33}});
    check({256, 1, 8}, {{130, 30}});
    check({40, 2, 4, 16, 50}, {{170, 100}});
  } else {
    for (int width : {64, 80, 96, 128, 256, 40, 112, 200}) {
      for (int length : {1, 2, 15, 16, 17, 33, 63, 64, 65, 127, 128, 129, 1000}) check({width, 2, 4}, {{length, length}});
      check({width, 2, 4}, {{2100, 2100}});
      check({width, 2, 1}, {{1, 1}, {700, 700}, {64, 64}, {65, 65}, {2100, 100}, {128, 50}, {1900, 9}, {3, 3}});
      for (int group : {1, 2, 3, 7, 8, 16}) check({width, 2, group}, {{500, 129}, {33, 33}, {1400, 300}});
      for (int block : {16, 32, 128}) check({width, 2, 4, block}, {{700, 300}, {31, 31}, {129, 129}});
      for (int window : {1, 50, 64, 200, 1000}) check({width, 2, 4, 64, window}, {{700, 700}, {31, 9}, {3000, 70}, {64, 64}});
      check({width, 2, 4, 64, 0, 20.0f, true}, {{700, 700}, {31, 31}, {1500, 30}});
      check({width, 2, 4, 64, 200, 0, true}, {{700, 600}, {31, 31}, {1500, 30}});
      std::vector<Sequence> many(300);
      for (size_t i = 0; i < many.size(); i++) many[i].context = 1 + random_bits(i, 3) % 300, many[i].tokens = 1 + random_bits(i, 4) % std::min(many[i].context, i % 3 ? 300 : 9);
      check({width, 2, 2}, many);
      check_cuts({width, 2, 4}), check_cuts({width, 1, 3, 64, 150, 20.0f, true});
    }
  }
  std::printf("prompt attention: %d checks, %d failed\n", done, bad);
  return bad;
}

void times() {
  struct Time {
    const char* name;
    Shape s;
    std::vector<Sequence> sequences;
  };
  std::vector<Sequence> mixed(64, {1024, 1});
  mixed.push_back({512, 512});
  const Shape llama{128, 8, 4};
  const Time all[] = {{"1 x 512", llama, {{512, 512}}},
                      {"1 x 2048", llama, {{2048, 2048}}},
                      {"1 x 8192", llama, {{8192, 8192}}},
                      {"4 x 2048", llama, std::vector<Sequence>(4, {2048, 2048})},
                      {"16 x 512", llama, std::vector<Sequence>(16, {512, 512})},
                      {"2048 after 6144", llama, {{8192, 2048}}},
                      {"512 after 7680", llama, {{8192, 512}}},
                      {"64 x 1 at 1024, 512", llama, mixed},
                      {"64 wide, 1 x 8192", {64, 8, 4}, {{8192, 8192}}},
                      {"80 wide, 1 x 8192", {80, 8, 4}, {{8192, 8192}}},
                      {"96 wide, 1 x 8192", {96, 8, 4}, {{8192, 8192}}},
                      {"256 wide, 1 x 8192", {256, 8, 2}, {{8192, 8192}}},
                      {"window 1024, 1 x 8192", {128, 8, 4, 64, 1024}, {{8192, 8192}}},
                      {"softcap, 1 x 8192", {128, 8, 4, 64, 0, 50.0f}, {{8192, 8192}}}};
  std::printf("%-24s%10s%10s%10s%10s%10s\n", "new tokens", "entry us", "wgmma", "TFLOP/s", "mma", "TFLOP/s");
  for (const Time& t : all) {
    double flops = 0;
    for (const Sequence& q : t.sequences)
      for (int i = q.context - q.tokens; i < q.context; i++) flops += 4.0 * t.s.width * t.s.kv_heads * t.s.group * (t.s.window ? std::min(i + 1, t.s.window) : i + 1);
    Case c(t.s, t.sequences, 4);
    double us[3];
    c.result(kEntry);  // outside of the capture: it allocates
    for (Kernel kernel : {kMma, kWgmma, kEntry})
      us[kernel] = graph_us(c.stream, 8, [&](int i) {
        if (!c.run(kernel, i % 4)) std::printf("FAILED refused\n"), std::exit(1);
      });
    std::printf("%-24s%10.1f%10.1f%10.0f%10.1f%10.0f\n", t.name, us[kEntry], us[kWgmma], flops / us[kWgmma] / 1e6, us[kMma], flops / us[kMma] / 1e6);
  }
}
}  // namespace

int main(int argc, char** argv) {
  const bool small = argc > 1 && !std::strcmp(argv[1], "small"), only_times = argc > 1 && !std::strcmp(argv[1], "times");
  const int bad = only_times ? 0 : check_all(small);
  if (!small && !bad) times();
  return bad != 0;
}
