// linear in bf16 on the GPU: every product against float64 sums over odd shapes, then times on the matrices of an 8B model with the fraction
// of the ceilings measured in the same run. Arguments: "small" checks a few small shapes only (for compute-sanitizer).
#include <cmath>
#include <cstring>

#include "cuda/linear/bf16.h"
#include "measure.cuh"

using namespace ix::cuda;
extern const ix_kernel ix_kernel_linear_bf16_fast_cuda, ix_kernel_linear_bf16_x_cuda, ix_kernel_linear_bf16_y_cuda, ix_kernel_linear_bf16_xy_cuda, ix_kernel_linear_f16_fast_cuda;

namespace {
// The kernels by the types of activations and results, then the products by themselves.
enum Way { kFloats, kFloatsToBf16, kBf16ToFloats, kBf16, kHalves, kStream, kRing, kTiled, kCublas };
const char* const kNames[] = {"f32 -> f32", "f32 -> bf16", "bf16 -> f32", "bf16 -> bf16", "f32 x f16 -> f32", "stream", "ring", "tiled", "cublaslt"};
const ix_kernel* const kKernels[] = {&ix_kernel_linear_bf16_fast_cuda, &ix_kernel_linear_bf16_y_cuda, &ix_kernel_linear_bf16_x_cuda, &ix_kernel_linear_bf16_xy_cuda, &ix_kernel_linear_f16_fast_cuda};

__global__ void clear_padding(__nv_bfloat16* w, int64_t rows, int64_t stride, int n, int k) {
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < rows * stride; i += int64_t(gridDim.x) * blockDim.x)
    if (i / stride >= n || i % stride >= k) w[i] = 0.0f;
}
__global__ void reference(Bf16Product p, float* out) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i >= int64_t(p.tokens) * p.n) return;
  const int64_t token = i / p.n, row = i % p.n;
  double sum = p.bias ? p.bias[row] : 0.0;
  for (int c = 0; c < p.k; c++) sum += double(__bfloat162float(p.x[token * p.x_stride + c])) * double(__bfloat162float(p.w[row * p.w_stride + c]));
  out[i] = float(sum);
}
__global__ void round_and_poison(float* x, __nv_bfloat16* rounded, int tokens, int64_t stride, int k) {
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < tokens * stride; i += int64_t(gridDim.x) * blockDim.x) {
    if (i % stride >= k) x[i] = NAN;
    rounded[i] = __float2bfloat16_rn(x[i]);
  }
}
__global__ void widen(float* to, const __nv_bfloat16* from, size_t count) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x) to[i] = __bfloat162float(from[i]);
}
__global__ void to_halves(__nv_bfloat16* data, size_t count) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x) reinterpret_cast<__half*>(data)[i] = __float2half_rn(__bfloat162float(data[i]));
}

struct Case {
  ix_stream stream = new_stream();
  Gpu gpu = current_gpu();
  int tokens, n, k, shift = 0;
  bool halves = false;
  int64_t w_stride, rows;
  size_t matrix;
  Memory<__nv_bfloat16> w, x16;
  Memory<float> x, y, bias;
  Memory<char> workspace;
  ix_tensor tensors[4]{};

  Case(int tokens, int n, int k, int copies, bool with_bias, int shift)
      : tokens(tokens), n(n), k(k), w_stride((k + 63) / 64 * 64), rows((n + 63) / 64 * 64), matrix(size_t(w_stride * rows)), w(matrix * copies), x16(tokens * x_stride() + shift), x(tokens * x_stride() + shift),
        y(size_t(tokens) * y_stride()), bias(n), workspace(workspace_bytes()) {
    w.fill(1, 12 + n), x.fill(1, 11 + tokens), bias.fill(4, 5);
    for (int c = 0; c < copies; c++) clear_padding<<<1024, 256>>>(w.data + c * matrix, rows, w_stride, n, k);
    round_and_poison<<<1024, 256>>>(x.data + shift, x16.data + shift, tokens, x_stride(), k);
    this->shift = shift;
    tensors[0] = {nullptr, 2, {tokens, k}, x_stride()};
    tensors[1] = {w.data, 2, {n, k}, 0};
    tensors[2] = {with_bias ? bias.data : nullptr, 1, {n}, 0};
    tensors[3] = {y.data, 2, {tokens, n}, y_stride()};
    y.bytes(0xff), workspace.bytes(0xff);
    CHECK(cudaDeviceSynchronize());
  }
  ~Case() { cudaStreamDestroy(stream.handle); }
  int64_t x_stride() const { return (k + 31) / 32 * 32; }
  int64_t y_stride() const { return (n + 31) / 32 * 32; }
  size_t workspace_bytes() {
    ix_tensor shapes[4] = {{nullptr, 2, {tokens, k}, 0}, {nullptr, 2, {n, k}, 0}, {}, {nullptr, 2, {tokens, n}, 0}};
    const ix_kernel_call call{shapes, nullptr, nullptr};
    return std::max(ix_kernel_linear_bf16_fast_cuda.workspace(&call, 1), cublaslt_workspace(n));
  }
  Bf16Product product(int copy = 0) const {
    return {x16.data + shift, w.data + copy * matrix, x_stride(), w_stride, y.data, y_stride(), static_cast<const float*>(tensors[2].data), tokens, n, k, false, false, halves};
  }
  bool run(Way way, int copy = 0) {
    tensors[1].data = w.data + copy * matrix;
    const ix_kernel_call call{tensors, nullptr, workspace.data};
    tensors[0].data = way < kBf16ToFloats || way == kHalves ? static_cast<void*>(x.data + shift) : x16.data + shift;
    if (way <= kHalves) return kKernels[way]->launch(&stream, &call), true;
    const Bf16Product p = product(copy);
    if (way == kStream) return stream_weights(&stream, gpu, p);
    if (way == kRing) return stream_weights_ring(&stream, gpu, p), true;
    if (way == kTiled) return tiled_product(&stream, gpu, p), true;
    return cublaslt_product(&stream, gpu, p, workspace.data);
  }
  // From here on w and x are f16 of the same values.
  void halve() {
    halves = true;
    widen<<<1024, 256>>>(x.data, x16.data, x.count);
    to_halves<<<1024, 256>>>(x16.data, x16.count);
    to_halves<<<1024, 256>>>(w.data, w.count);
  }
  // relative error of all outputs; the padding of y must stay as it was
  bool check(Way way, const std::vector<float>& want) {
    y.bytes(0xff);
    CHECK(cudaDeviceSynchronize());
    if (!run(way)) return std::printf("FAILED %s refused T %d N %d K %d\n", kNames[way], tokens, n, k), false;
    CHECK(cudaStreamSynchronize(stream.handle));
    const bool narrow = way == kFloatsToBf16 || way == kBf16;
    const std::vector<float> got = y.get();
    const __nv_bfloat16* got16 = reinterpret_cast<const __nv_bfloat16*>(got.data());
    double error = 0, norm = 0;
    bool padding = true;
    for (int t = 0; t < tokens; t++)
      for (int c = 0; c < y_stride(); c++) {
        const float v = narrow ? __bfloat162float(got16[t * y_stride() + c]) : got[t * y_stride() + c];
        if (c >= n) {
          padding &= std::isnan(v);
          continue;
        }
        const double d = double(v) - want[size_t(t) * n + c];
        error += d * d, norm += double(want[size_t(t) * n + c]) * want[size_t(t) * n + c];
      }
    const double relative = std::sqrt(error / norm);
    const bool good = relative < (narrow ? 3e-3 : halves ? 1e-4 : 1e-5) && padding && !stream.error[0];
    if (!good) std::printf("FAILED %s T %d N %d K %d bias %d: relative error %.2e, padding %s %s\n", kNames[way], tokens, n, k, tensors[2].data != nullptr, relative, padding ? "kept" : "written", stream.error);
    return good;
  }
  std::vector<float> want() {
    Memory<float> out(size_t(tokens) * n);
    reference<<<unsigned((out.count + 127) / 128), 128>>>(product(), out.data);
    return out.get();
  }
};

int check_all(bool small) {
  int bad = 0, done = 0;
  struct Shape {
    int n, k;
  };
  const std::vector<Shape> shapes = small ? std::vector<Shape>{{97, 100}, {1047, 1153}, {200, 640}} : std::vector<Shape>{{1, 8}, {97, 100}, {200, 384}, {1047, 1153}, {2048, 4096}, {6143, 640}, {10000, 576}, {20011, 328}};
  for (const Shape s : shapes)
    for (int tokens : small ? std::vector<int>{1, 16, 33, 65} : std::vector<int>{1, 2, 7, 8, 9, 16, 17, 33, 64, 65, 200, 512})
      for (int shift : {0, 1}) {
        if (shift && tokens != 2 && tokens != 16) continue;
        Case c(tokens, s.n, s.k, 1, (tokens + s.n) % 2 == 0, shift);
        const std::vector<float> want = c.want();
        const auto check = [&](Way way) { bad += !c.check(way, want), done++; };
        for (const Way way : {kFloats, kFloatsToBf16, kBf16ToFloats, kBf16}) {
          if (!small || tokens <= kStreamTokens) check(way);  // cuBLASLt is not for the sanitizer
        }
        const auto check_products = [&] {
          if (shift || s.k % 64 != 0) return;  // the launcher would have copied the activations
          if (tokens <= kStreamTokens) check(kStream);
          if (tokens <= kRingTokens) check(kRing);
          check(kTiled);
          if (!small) check(kCublas);
        };
        check_products();
        c.halve();
        if (!small || tokens <= kStreamTokens) check(kHalves);
        check_products();
      }
  std::printf("linear: %d checks, %d failed\n", done, bad);
  return bad;
}

void times() {
  ix_stream stream = new_stream();
  const double ceiling = read_ceiling(stream);
  std::printf("reading ceiling %.2f TB/s\n", ceiling);
  struct Shape {
    const char* name;
    int n, k;
  };
  const Shape shapes[] = {{"qkv", 6144, 4096}, {"o", 4096, 4096}, {"gate-up", 28672, 4096}, {"down", 4096, 14336}, {"lm_head", 128256, 4096}};
  std::printf("%-8s", "us (TB/s, %)");
  const std::vector<int> few = {1, 8, 16, 32, 64};
  for (int t : few) std::printf("  T %-18d", t);
  for (const Shape& s : shapes) {
    const double mb = double(s.n) * s.k * 2 / 1e6;
    const int copies = std::max(2, int(2000 / mb)), nodes = mb > 500 ? 4 : std::min(32, copies);
    std::printf("\n%-12s", s.name);
    for (int t : few) {
      Case c(t, s.n, s.k, std::min(copies, nodes), false, 0);
      const double us = graph_us(c.stream, nodes, [&](int i) { c.run(kBf16, i % std::min(copies, nodes)); });
      std::printf("  %6.1f (%.2f, %2.0f %%)", us, mb / us, 100 * mb / us / ceiling);
      std::fflush(stdout);
    }
  }
  std::printf("\n");
  Case square(8192, 8192, 8192, 1, false, 0);
    double peak = 0;
  if (square.run(kCublas)) peak = 2.0 * 8192 * 8192 * 8192 / 1e6 / graph_us(square.stream, 4, [&](int) { square.run(kCublas); });
  std::printf("ceiling of products: %.0f TFLOP/s (cuBLASLt, 8192 cubed, random data)%s\n", peak, peak ? "" : ": cuBLASLt is missing");
  std::printf("%-12s%-8s%-26s%s\n", "us", "T", "launch (TFLOP/s, %)", "tiled (TFLOP/s)");
  for (const Shape& s : shapes)
    for (int t : {65, 128, 256, 512, 2048}) {
      if (s.n > 100000 && t > 512) continue;
      const int copies = s.n > 100000 || t > 1000 ? 2 : 6, nodes = copies;
      Case c(t, s.n, s.k, copies, false, 0);
      const double flops = 2.0 * t * s.n * s.k / 1e6;
      const double us = graph_us(c.stream, nodes, [&](int i) { c.run(kBf16, i % copies); });
      const double tiled = t <= 256 ? graph_us(c.stream, nodes, [&](int i) { c.run(kTiled, i % copies); }) : 0;
      std::printf("%-12s%-8d%7.1f (%4.0f, %3.0f %%)      ", s.name, t, us, flops / us, peak ? 100 * flops / us / peak : 0);
      if (tiled > 0) std::printf("%7.1f (%4.0f)", tiled, flops / tiled);
      std::printf("\n");
    }
}
}  // namespace

int main(int argc, char** argv) {
  const bool small = argc > 1 && !std::strcmp(argv[1], "small");
  const int bad = check_all(small);
  if (!small && !bad) times();
  return bad != 0;
}
