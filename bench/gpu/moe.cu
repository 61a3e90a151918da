// moe_linear, moe_route and moe_combine on the GPU: each against a plain evaluation over uneven routing and odd shapes, then times on the
// shapes of Mixtral 8x7B and Qwen3-30B-A3B with the fraction of the ceilings measured in the same run. Arguments: "small" checks a few small
// shapes only (for compute-sanitizer); "check" only checks, "quick" only times some.
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>

#include "cuda/moe/grouped.h"
#include "measure.cuh"

using namespace ix::cuda;
extern const ix_kernel ix_kernel_moe_linear_bf16_cuda, ix_kernel_linear_bf16_fast_cuda, ix_kernel_moe_route_cuda, ix_kernel_moe_combine_cuda;
extern const ix_kernel ix_kernel_moe_linear_bf16_fast_cuda, ix_kernel_moe_linear_bf16_y_cuda, ix_kernel_moe_linear_bf16_x_cuda,
    ix_kernel_moe_linear_bf16_xy_cuda;

namespace {
using Bf16 = __nv_bfloat16;
int64_t padded(int64_t columns) { return (columns + 31) / 32 * 32; }

enum Routing { kUniform, kOne, kFew, kMissing };  // distinct at random; all to one expert; to two experts; a third to none
const char* const kRoutings[] = {"uniform", "one", "few", "missing"};
enum Way { kLaunch, kWgmma, kMma16, kMma128, kExact };
const char* const kWays[] = {"launch", "wgmma", "mma 16", "mma 128", "f32"};

std::vector<int> choose(Routing routing, int tokens, int slots, int num_experts, uint32_t seed) {
  std::vector<int> experts(size_t(tokens) * slots), all(num_experts);
  std::iota(all.begin(), all.end(), 0);
  for (int t = 0; t < tokens; t++)
    for (int j = 0; j < slots; j++) {
      const uint32_t random = random_bits(size_t(t) * slots + j, seed);
      if (j < num_experts) std::swap(all[j], all[j + random % (num_experts - j)]);
      int& expert = experts[size_t(t) * slots + j];
      expert = all[j % num_experts];
      if (routing == kOne) expert = num_experts / 2;
      if (routing == kFew) expert = random % 5 ? num_experts - 1 : 0;
      if (routing == kMissing && random % 3 == 0) expert = random % 2 ? -1 : num_experts;
    }
  return experts;
}

__global__ void clear_padding(Bf16* w, int experts, int64_t rows, int64_t stride, int n, int k) {
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < experts * rows * stride; i += int64_t(gridDim.x) * blockDim.x)
    if (i / stride % rows >= n || i % stride >= k) w[i] = 0.0f;
}
template <class X>
__global__ void reference(const X* x, int64_t x_stride, const int* experts, int64_t experts_stride, const Bf16* w, int64_t rows, int64_t stride, int tokens, int slots, int num_experts, int n, int k,
                          bool per_slot, bool rounds, float* out) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x, token = i / (int64_t(slots) * n), slot = i / n % slots, row = i % n;
  if (token >= tokens) return;
  const int expert = experts[token * experts_stride + slot];
  double sum = 0;
  if (expert >= 0 && expert < num_experts)
    for (int c = 0; c < k; c++) {
      const float value = x[token * x_stride + (per_slot ? slot * k : 0) + c];
      sum += double(rounds ? float(Bf16(value)) : value) * double(float(w[(expert * rows + row) * stride + c]));
    }
  out[i] = float(sum);
}
template <class X>
__global__ void poison_padding(X* x, int64_t rows, int64_t stride, int columns) {
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < rows * stride; i += int64_t(gridDim.x) * blockDim.x)
    if (i % stride >= columns) x[i] = NAN;
}

template <class X, class Y>
const ix_kernel& kernel() {
  if constexpr (sizeof(X) == 4) return sizeof(Y) == 4 ? ix_kernel_moe_linear_bf16_fast_cuda : ix_kernel_moe_linear_bf16_y_cuda;
  return sizeof(Y) == 4 ? ix_kernel_moe_linear_bf16_x_cuda : ix_kernel_moe_linear_bf16_xy_cuda;
}

template <class X = float, class Y = float>
struct Case {
  ix_stream stream = new_stream();
  Gpu gpu = current_gpu();
  int tokens, slots, num_experts, n, k;
  bool per_slot;
  int64_t w_stride, rows, x_stride, y_stride;
  Memory<Bf16> w;
  Memory<X> x;
  Memory<Y> y;
  Memory<int> experts;
  size_t routing_size;
  ix_tensor tensors[4]{};
  ix_attr attribute{};
  Memory<char> workspace;

  Case(int tokens, int slots, int num_experts, int n, int k, bool per_slot, int routings = 1, int shift = 0)
      : tokens(tokens), slots(slots), num_experts(num_experts), n(n), k(k), per_slot(per_slot), w_stride((k + 63) / 64 * 64), rows((n + 63) / 64 * 64), x_stride(padded(per_slot ? k * slots : k)),
        y_stride(padded(slots * n)), w(size_t(num_experts) * rows * w_stride), x(tokens * x_stride + shift), y(tokens * y_stride), experts(size_t(routings) * tokens * padded(slots)),
        routing_size(tokens * padded(slots)), workspace(workspace_bytes()) {
    w.fill(1, 12 + n), x.fill(1, 11);
    clear_padding<<<1024, 256>>>(w.data, num_experts, rows, w_stride, n, k);
    poison_padding<<<256, 256>>>(x.data + shift, tokens, x_stride, per_slot ? k * slots : k);
    set_tensors(tokens, shift);
    attribute.i = per_slot;
    workspace.bytes(0xff);
    CHECK(cudaDeviceSynchronize());
  }
  ~Case() { cudaStreamDestroy(stream.handle); }
  void set_tensors(int count, int shift = 0) {
    tensors[0] = {x.data + shift, 2, {count, per_slot ? k * slots : k}, x_stride};
    tensors[1] = {experts.data, 2, {count, slots}, padded(slots)};
    tensors[2] = {w.data, 3, {num_experts, n, k}, 0};
    tensors[3] = {y.data, 2, {count, slots * n}, y_stride};
  }
  size_t workspace_bytes() {
    set_tensors(tokens);
    const ix_kernel_call call{tensors, &attribute, nullptr};
    return kernel<float, float>().workspace(&call, 1);
  }
  double hit = 0;  // experts that a routing hits, on average
  void route(Routing routing, int routings = 1) {
    std::vector<int> all(experts.count, -7);
    for (int r = 0; r < routings; r++) {
      const std::vector<int> one = choose(routing, tokens, slots, num_experts, 5 + r);
      std::vector<bool> used(num_experts);
      for (size_t i = 0; i < one.size(); i++) {
        all[r * routing_size + i / slots * padded(slots) + i % slots] = one[i];
        if (one[i] >= 0 && one[i] < num_experts) used[one[i]] = true;
      }
      hit += double(std::count(used.begin(), used.end(), true)) / routings;
    }
    experts.put(all);
  }
  void run(Way way, int routing = 0) {
    tensors[1].data = experts.data + routing * routing_size;
    const ix_kernel_call call{tensors, &attribute, workspace.data};
    if (way == kLaunch) return kernel<X, Y>().launch(&stream, &call);
    if (way == kExact) return ix_kernel_moe_linear_bf16_cuda.launch(&stream, &call);
    const GroupedProduct g = grouped_product(&call, sizeof(X) == 2, sizeof(Y) == 2);
    if (way == kMma16 || way == kMma128) return grouped_mma(&stream, gpu, g, way == kMma16 ? 16 : 128);
    if (!grouped_wgmma(&stream, gpu, g, kManyTokens)) std::printf("FAILED %s refused\n", kWays[way]), std::exit(1);
  }
  std::vector<float> want(bool rounds = true) {
    Memory<float> out(size_t(tokens) * slots * n);
    const X* from = static_cast<const X*>(tensors[0].data);
    reference<<<unsigned((out.count + 127) / 128), 128>>>(from, x_stride, experts.data, padded(slots), w.data, rows, w_stride, tokens, slots, num_experts, n, k, per_slot, rounds, out.data);
    return out.get();
  }
  // relative error of all outputs; the padding of y must stay as it was
  bool check(Way way, const std::vector<float>& want, const char* what) {
    y.bytes(0xff);
    CHECK(cudaDeviceSynchronize());
    run(way);
    CHECK(cudaStreamSynchronize(stream.handle));
    CHECK(cudaGetLastError());
    const std::vector<Y> got = y.get();
    double error = 0, norm = 1e-30;
    bool padding = true, zeros = true;
    for (int t = 0; t < tokens; t++)
      for (int c = 0; c < y_stride; c++) {
        const float v = float(got[t * y_stride + c]);
        if (c >= slots * n) {
          padding &= std::isnan(v);
          continue;
        }
        const double exact = want[size_t(t) * slots * n + c], d = v - exact;
        if (exact == 0) zeros &= v == 0;
        error += d * d, norm += exact * exact;
      }
    const double relative = std::sqrt(error / norm);
    const bool good = relative < (sizeof(Y) == 2 ? 3e-3 : 1e-5) && padding && zeros && !stream.error[0];
    if (!good)
      std::printf("FAILED %s %s: T %d slots %d E %d N %d K %d per slot %d, bf16 x %d y %d: relative error %.2e, padding %s, zeros %s %s\n", kWays[way], what, tokens, slots, num_experts, n, k, per_slot,
                  sizeof(X) == 2, sizeof(Y) == 2, relative, padding ? "kept" : "written", zeros ? "kept" : "missing", stream.error);
    return good;
  }
};

int bad = 0, done = 0;

template <class X, class Y>
void check_shape(int tokens, int slots, int num_experts, int n, int k, bool per_slot, Routing routing, int shift = 0) {
  Case<X, Y> c(tokens, slots, num_experts, n, k, per_slot, 1, shift);
  c.route(routing);
  const std::vector<float> want = c.want();
  for (Way way : {kLaunch, kWgmma, kMma16, kMma128}) bad += !c.check(way, want, kRoutings[routing]), done++;
  if (sizeof(X) == 4 && sizeof(Y) == 4 && tokens <= 100) bad += !c.check(kExact, c.want(false), kRoutings[routing]), done++;
}

// Whatever else is in the batch, a token's results are the same bits.
void check_batches(int slots, int num_experts, int n, int k, bool per_slot, Way among, Way alone) {
  const int most = 1100;
  Case<> c(most, slots, num_experts, n, k, per_slot);
  c.route(kUniform);
  c.run(among);
  const std::vector<float> want = c.y.get();
  for (int tokens : {1, 3, 16, 17, 100, 500}) {
    c.y.bytes(0xff);
    c.set_tensors(tokens);
    c.run(alone);
    const std::vector<float> got = c.y.get();
    size_t differ = 0;
    for (int t = 0; t < tokens; t++)
      for (int i = 0; i < slots * n; i++) differ += std::memcmp(&got[t * c.y_stride + i], &want[t * c.y_stride + i], 4) != 0;
    bad += differ != 0, done++;
    if (differ) std::printf("FAILED %s of %d tokens and %s among %d: %zu of %d results differ\n", kWays[alone], tokens, kWays[among], most, differ, tokens * slots * n);
  }
}

void check_route(int tokens, int num_experts, int k, int scoring, bool renormalize, int levels) {
  ix_stream stream = new_stream();
  const int64_t stride = padded(num_experts), out = padded(k);
  std::vector<float> logits(tokens * stride, NAN);
  for (int t = 0; t < tokens; t++)
    for (int e = 0; e < num_experts; e++) {
      const float v = std::round(random_value(t * num_experts + e, 3) * levels) * 4 / levels;  // few levels: ties, signed zeros
      logits[t * stride + e] = random_bits(t * num_experts + e, 9) % 50 == 0 ? NAN : v;
    }
  Memory<float> x(logits.size()), weights(tokens * out);
  Memory<int> experts(tokens * out);
  x.put(logits), weights.bytes(0xff), experts.bytes(0xff);
  ix_tensor tensors[3] = {{x.data, 2, {tokens, num_experts}, stride}, {experts.data, 2, {tokens, k}, out}, {weights.data, 2, {tokens, k}, out}};
  ix_attr attributes[4]{};
  attributes[0].i = k, attributes[1].i = scoring, attributes[2].i = renormalize, attributes[3].f = 1.5;
  const ix_kernel_call call{tensors, attributes, nullptr};
  ix_kernel_moe_route_cuda.launch(&stream, &call);
  CHECK(cudaStreamSynchronize(stream.handle));
  const std::vector<int> got = experts.get();
  const std::vector<float> got_weights = weights.get();
  double worst = 0;
  bool same = true;
  for (int t = 0; t < tokens; t++) {
    std::vector<int> order(num_experts);
    std::iota(order.begin(), order.end(), 0);
    const auto value = [&](int e) { return std::isnan(logits[t * stride + e]) ? -INFINITY : logits[t * stride + e]; };
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return value(a) > value(b); });
    const double top = std::isfinite(value(order[0])) ? value(order[0]) : 0;
    const auto score = [&](int e) { return scoring == 2 ? 1 / (1 + std::exp(-double(value(e)))) : std::exp(value(e) - top); };
    double kept = 0, all = 0;
    for (int j = 0; j < num_experts; j++) all += score(order[j]), kept += j < k ? score(order[j]) : 0;
    const double divisor = renormalize || scoring == 1 ? kept : scoring == 0 ? all : 1;
    for (int j = 0; j < k; j++) {
      same &= got[t * out + j] == (j < num_experts ? order[j] : -1);
      const double want = j < num_experts && divisor > 0 ? score(order[j]) / divisor * 1.5 : 0;
      worst = std::max(worst, std::abs(got_weights[t * out + j] - want));
      if (std::isnan(got_weights[t * out + j])) worst = INFINITY;
    }
  }
  const bool good = same && worst < 1e-5 && !stream.error[0];
  if (!good) std::printf("FAILED moe_route T %d E %d top %d scoring %d renormalize %d: experts %s, weights off by %.1e %s\n", tokens, num_experts, k, scoring, renormalize, same ? "same" : "differ", worst, stream.error);
  bad += !good, done++;
  cudaStreamDestroy(stream.handle);
}

void check_combine(int tokens, int slots, int width) {
  ix_stream stream = new_stream();
  const int64_t stride = padded(slots * width), out = padded(width);
  Memory<float> x(tokens * stride), weights(tokens * padded(slots)), y(tokens * out);
  x.fill(1, 3), weights.fill(1, 4), y.bytes(0xff);
  const ix_tensor tensors[3] = {{x.data, 2, {tokens, slots * width}, stride}, {weights.data, 2, {tokens, slots}, padded(slots)}, {y.data, 2, {tokens, width}, out}};
  const ix_kernel_call call{tensors, nullptr, nullptr};
  ix_kernel_moe_combine_cuda.launch(&stream, &call);
  CHECK(cudaStreamSynchronize(stream.handle));
  const std::vector<float> a = x.get(), w = weights.get(), got = y.get();
  bool good = !stream.error[0];
  for (int t = 0; t < tokens; t++)
    for (int c = 0; c < out; c++) {
      float sum = 0;
      for (int j = 0; c < width && j < slots; j++) sum = std::fma(a[t * stride + j * width + c], w[t * padded(slots) + j], sum);
      good &= c < width ? got[t * out + c] == sum : std::isnan(got[t * out + c]);
    }
  if (!good) std::printf("FAILED moe_combine T %d slots %d width %d %s\n", tokens, slots, width, stream.error);
  bad += !good, done++;
  cudaStreamDestroy(stream.handle);
}

void check_all(bool small) {
  if (small) {
    check_shape<float, float>(3, 2, 5, 97, 100, false, kMissing);
    check_shape<float, float>(20, 4, 7, 200, 132, true, kUniform);
    check_shape<Bf16, Bf16>(40, 2, 3, 130, 192, true, kFew);
    check_shape<Bf16, float>(70, 2, 4, 65, 77, false, kOne);
    check_route(5, 40, 4, 0, true, 6);
    check_combine(3, 4, 45), check_combine(3, 4, 64);
    return;
  }
  struct Shape {
    int slots, num_experts, n, k;
  };
  for (const Shape s : {Shape{2, 8, 1047, 328}, {8, 128, 192, 256}, {1, 1, 97, 100}, {4, 60, 333, 77}, {3, 600, 64, 132}})
    for (int tokens : {1, 2, 7, 16, 17, 64, 100, 333, 2100})
      for (Routing routing : {kUniform, kOne, kFew, kMissing}) {
        if (tokens > 300 && routing != (tokens == 333 ? kUniform : kMissing)) continue;
        const bool per_slot = (tokens + routing) % 2;
        check_shape<float, float>(tokens, s.slots, s.num_experts, s.n, s.k, per_slot, routing, tokens == 7);
        if (routing != kFew) check_shape<Bf16, float>(tokens, s.slots, s.num_experts, s.n, s.k, per_slot, routing, tokens == 2);
        if (routing == kMissing) check_shape<float, Bf16>(tokens, s.slots, s.num_experts, s.n, s.k, !per_slot, routing);
        if (routing == kUniform) check_shape<Bf16, Bf16>(tokens, s.slots, s.num_experts, s.n, s.k, !per_slot, routing);
      }
  for (const auto [among, alone] : {std::pair{kLaunch, kLaunch}, {kMma128, kMma16}})
    check_batches(2, 8, 500, 1000, false, among, alone), check_batches(8, 64, 300, 768, true, among, alone);
  for (int scoring : {0, 1, 2})
    for (bool renormalize : {false, true})
      for (int levels : {5, 100000})
        for (int num_experts : {1, 8, 33, 128, 512, 700}) check_route(70, num_experts, 8, scoring, renormalize, levels);
  for (int width : {1, 45, 64, 2048})
    for (int slots : {1, 2, 8}) check_combine(9, slots, width);
}

struct Model {
  const char* name;
  int slots, num_experts, n, k;
  bool per_slot;
};
const Model kModels[] = {{"mixtral gate-up", 2, 8, 28672, 4096, false}, {"mixtral down", 2, 8, 4096, 14336, true}, {"qwen3 gate-up", 8, 128, 1536, 2048, false}, {"qwen3 down", 8, 128, 2048, 768, true}};

void times(bool quick) {
  ix_stream stream = new_stream();
  const double ceiling = read_ceiling(stream);
  double dense = 0;
  {
    Memory<float> x(2048 * 4096), y(2048 * size_t(28672));
    Memory<Bf16> w(size_t(28672) * 4096);
    x.fill(1, 1), w.fill(1, 2);
    const ix_tensor tensors[4] = {{x.data, 2, {2048, 4096}, 4096}, {w.data, 2, {28672, 4096}, 0}, {}, {y.data, 2, {2048, 28672}, 28672}};
    ix_kernel_call call{tensors, nullptr, nullptr};
    Memory<char> workspace(ix_kernel_linear_bf16_fast_cuda.workspace(&call, 1));
    call.workspace = workspace.data;
    ix_kernel_linear_bf16_fast_cuda.launch(&stream, &call);
    CHECK(cudaStreamSynchronize(stream.handle));
    dense = 2.0 * 2048 * 28672 * 4096 / 1e6 / graph_us(stream, 4, [&](int) { ix_kernel_linear_bf16_fast_cuda.launch(&stream, &call); });
  }
  std::printf("ceilings: reading %.2f TB/s; linear of 2048 tokens, 28672 x 4096: %.0f TFLOP/s\n", ceiling, dense);
  std::printf("%-16s%-6s%8s %-30s%9s", "shape", "T", "us", "TB/s of experts hit, TFLOP/s", "bf16 x, y");
  for (Way way : {kWgmma, kMma16, kMma128}) std::printf("%10s", kWays[way]);
  std::printf("\n");
  for (const Model& m : kModels)
    for (int t : {1, 2, 8, 16, 64, 256, 512, 2048, 8192}) {
      if (quick && (t == 256 || t == 512)) continue;
      const int routings = t < 512 ? 16 : 2;
      Case<> c(t, m.slots, m.num_experts, m.n, m.k, m.per_slot, routings);
      c.route(kUniform, routings);
      const auto us_of = [&](auto& c, Way way) { return graph_us(c.stream, routings, [&](int i) { c.run(way, i); }); };
      const double us = us_of(c, kLaunch), tb = c.hit * m.n * m.k * 2 / 1e6 / us, tflops = 2.0 * t * m.slots * m.n * m.k / 1e6 / us;
      std::printf("%-16s%-6d%8.1f %.2f (%2.0f %%), %3.0f (%2.0f %%)%7s", m.name, t, us, tb, 100 * tb / ceiling, tflops, 100 * tflops / dense, "");
      if (!quick) {
        Case<Bf16, Bf16> lean(t, m.slots, m.num_experts, m.n, m.k, m.per_slot, routings);
        lean.route(kUniform, routings);
        std::printf("%14.1f", us_of(lean, kLaunch));
      }
      for (Way way : {kWgmma, kMma16, kMma128}) {
        if (quick || t > 2048 || (way == kWgmma && t > 16) || (t > 256 && way == kMma16) || (t < 256 && way == kMma128)) {
          std::printf("%10s", "");
          continue;
        }
        std::printf("%10.1f", us_of(c, way));
      }
      std::printf("\n");
      std::fflush(stdout);
    }
  std::printf("us, 16 in turn: ");
  for (int t : {1, 64, 2048}) {
    Memory<float> logits(t * 128), weights(t * 32), x(t * size_t(8) * 2048), y(t * 2048);
    Memory<int> experts(t * 32);
    logits.fill(4, 1), x.fill(1, 2);
    const ix_tensor route[3] = {{logits.data, 2, {t, 128}, 128}, {experts.data, 2, {t, 8}, 32}, {weights.data, 2, {t, 8}, 32}};
    const ix_tensor combine[3] = {{x.data, 2, {t, 8 * 2048}, 8 * 2048}, {weights.data, 2, {t, 8}, 32}, {y.data, 2, {t, 2048}, 2048}};
    ix_attr attributes[4]{};
    attributes[0].i = 8, attributes[2].i = 1, attributes[3].f = 1;
    const ix_kernel_call routing{route, attributes, nullptr}, combining{combine, nullptr, nullptr};
    std::printf(" T %d: moe_route of 128 %.1f,", t, graph_us(stream, 16, [&](int) { ix_kernel_moe_route_cuda.launch(&stream, &routing); }));
    std::printf(" moe_combine of 8 x 2048 %.1f;", graph_us(stream, 16, [&](int) { ix_kernel_moe_combine_cuda.launch(&stream, &combining); }));
  }
  std::printf("\n");
}
}  // namespace

int main(int argc, char** argv) {
  const bool small = argc > 1 && !std::strcmp(argv[1], "small");
  const bool quick = argc > 1 && !std::strcmp(argv[1], "quick");
  if (!quick) check_all(small), std::printf("moe: %d checks, %d failed\n", done, bad);
  if (!small && !bad && !(argc > 1 && !std::strcmp(argv[1], "check"))) times(quick);
  return bad != 0;
}
