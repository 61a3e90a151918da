// linear in bf16 on the GPU: every product against float64 sums over odd shapes, then times on the matrices of an 8B model with the fraction
// of the ceilings measured in the same run. Arguments: "small" checks a few small shapes only (for compute-sanitizer).
#include <cmath>
#include <cstring>

#include "cuda/linear/bf16.h"
#include "measure.cuh"

using namespace ix::cuda;
extern const ix_kernel ix_kernel_linear_bf16_fast_cuda;

namespace {
enum Way { kLaunch, kStream, kRing, kTiled, kCublas };
const char* const kNames[] = {"launch", "stream", "ring", "tiled", "cublaslt"};

__global__ void clear_padding(__nv_bfloat16* w, int64_t rows, int64_t stride, int n, int k) {
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < rows * stride; i += int64_t(gridDim.x) * blockDim.x)
    if (i / stride >= n || i % stride >= k) w[i] = 0.0f;
}
__global__ void reference(Product p, const __nv_bfloat16* w, int64_t stride, float* out) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i >= int64_t(p.tokens) * p.n) return;
  const int64_t token = i / p.n, row = i % p.n;
  double sum = p.bias ? p.bias[row] : 0.0;
  for (int c = 0; c < p.k; c++) sum += double(__bfloat162float(__float2bfloat16_rn(p.x[token * p.x_stride + c]))) * double(__bfloat162float(w[row * stride + c]));
  out[i] = float(sum);
}
__global__ void poison_padding(float* x, int tokens, int64_t stride, int k) {
  for (int64_t i = threadIdx.x; i < tokens * stride; i += blockDim.x)
    if (i % stride >= k) x[i] = NAN;
}

struct Case {
  ix_stream stream = new_stream();
  Gpu gpu = current_gpu();
  int tokens, n, k;
  int64_t w_stride, rows;
  size_t matrix;
  Memory<__nv_bfloat16> w;
  Memory<float> x, y, bias;
  Memory<char> workspace;
  ix_tensor tensors[4]{};

  Case(int tokens, int n, int k, int copies, bool with_bias, int shift)
      : tokens(tokens), n(n), k(k), w_stride((k + 63) / 64 * 64), rows((n + 63) / 64 * 64), matrix(size_t(w_stride * rows)), w(matrix * copies), x(tokens * x_stride() + shift),
        y(size_t(tokens) * y_stride()), bias(n), workspace(workspace_bytes()) {
    w.fill(1, 12 + n), x.fill(1, 11 + tokens), bias.fill(4, 5);
    for (int c = 0; c < copies; c++) clear_padding<<<1024, 256>>>(w.data + c * matrix, rows, w_stride, n, k);
    poison_padding<<<1, 1024>>>(x.data + shift, tokens, x_stride(), k);
    tensors[0] = {x.data + shift, 2, {tokens, k}, x_stride()};
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
    return ix_kernel_linear_bf16_fast_cuda.workspace(&call, 1) + kCublasWorkspace + size_t(tokens) * w_stride * 2;
  }
  Product product() const {
    return {static_cast<const float*>(tensors[0].data), tensors[0].stride, y.data, y_stride(), static_cast<const float*>(tensors[2].data), tokens, n, k};
  }
  bool run(Way way, int copy = 0) {
    tensors[1].data = w.data + copy * matrix;
    const ix_kernel_call call{tensors, nullptr, workspace.data};
    if (way == kLaunch) return ix_kernel_linear_bf16_fast_cuda.launch(&stream, &call), true;
    const Bf16Product p{product(), w.data + copy * matrix, w_stride, reinterpret_cast<__nv_bfloat16*>(workspace.data), w_stride};
    void* beyond = workspace.data + (size_t(tokens) * w_stride * 2 + 255) / 256 * 256;
    if (way == kStream) return stream_weights(&stream, gpu, p);
    if (way == kRing) return stream_weights_ring(&stream, gpu, p), true;
    if (way == kTiled) return tiled_product(&stream, gpu, p), true;
    return cublaslt_product(&stream, gpu, p, beyond);
  }
  // relative error of all outputs; the padding of y must stay as it was
  bool check(Way way, const std::vector<float>& want) {
    y.bytes(0xff);
    CHECK(cudaDeviceSynchronize());
    if (!run(way)) return std::printf("FAILED %s refused T %d N %d K %d\n", kNames[way], tokens, n, k), false;
    CHECK(cudaStreamSynchronize(stream.handle));
    const std::vector<float> got = y.get();
    double error = 0, norm = 0;
    bool padding = true;
    for (int t = 0; t < tokens; t++)
      for (int c = 0; c < y_stride(); c++) {
        const float v = got[t * y_stride() + c];
        if (c >= n) {
          padding &= std::isnan(v);
          continue;
        }
        const double d = double(v) - want[size_t(t) * n + c];
        error += d * d, norm += double(want[size_t(t) * n + c]) * want[size_t(t) * n + c];
      }
    const double relative = std::sqrt(error / norm);
    const bool good = relative < 1e-5 && padding && !stream.error[0];
    if (!good) std::printf("FAILED %s T %d N %d K %d bias %d: relative error %.2e, padding %s %s\n", kNames[way], tokens, n, k, tensors[2].data != nullptr, relative, padding ? "kept" : "written", stream.error);
    return good;
  }
  std::vector<float> want() {
    Memory<float> out(size_t(tokens) * n);
    reference<<<unsigned((out.count + 127) / 128), 128>>>(product(), w.data, w_stride, out.data);
    return out.get();
  }
};

int check_all(bool small) {
  int bad = 0, done = 0;
  struct Shape {
    int n, k;
  };
  const std::vector<Shape> shapes = small ? std::vector<Shape>{{97, 100}, {1047, 1153}} : std::vector<Shape>{{1, 8}, {97, 100}, {200, 384}, {1047, 1153}, {2048, 4096}, {6143, 640}, {10000, 576}, {20011, 328}};
  for (const Shape s : shapes)
    for (int tokens : small ? std::vector<int>{1, 16, 33, 65} : std::vector<int>{1, 2, 7, 8, 9, 16, 17, 33, 64, 65, 200, 512})
      for (int shift : {0, 1}) {
        if (shift && tokens != 2 && tokens != 16) continue;
        Case c(tokens, s.n, s.k, 1, (tokens + s.n) % 2 == 0, shift);
        const std::vector<float> want = c.want();
        const auto check = [&](Way way) { bad += !c.check(way, want), done++; };
        check(kLaunch);
        if (tokens > kStreamFloats) {
          if (tokens <= kStreamTokens) check(kStream);
          check(kTiled);
          if (!small) check(kCublas);
        } else if (shift) {  // the launcher has rounded the activations
          check(kRing), check(kTiled);
        }
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
      const double us = graph_us(c.stream, nodes, [&](int i) { c.run(kLaunch, i % std::min(copies, nodes)); });
      std::printf("  %6.1f (%.2f, %2.0f %%)", us, mb / us, 100 * mb / us / ceiling);
      std::fflush(stdout);
    }
  }
  std::printf("\n");
  Case square(8192, 8192, 8192, 1, false, 0);
  square.run(kLaunch);
  double peak = 0;
  if (square.run(kCublas)) peak = 2.0 * 8192 * 8192 * 8192 / 1e6 / graph_us(square.stream, 4, [&](int) { square.run(kCublas); });
  std::printf("ceiling of products: %.0f TFLOP/s (cuBLASLt, 8192 cubed, random data)%s\n", peak, peak ? "" : ": cuBLASLt is missing");
  std::printf("%-12s%-8s%-26s%-20s%s\n", "us", "T", "launch (TFLOP/s, %)", "cublaslt alone", "tiled (TFLOP/s)");
  for (const Shape& s : shapes)
    for (int t : {65, 128, 256, 512, 2048, 8192}) {
      if (s.n > 100000 && t > 512) continue;
      const int copies = s.n > 100000 || t > 1000 ? 2 : 6, nodes = copies;
      Case c(t, s.n, s.k, copies, false, 0);
      const double flops = 2.0 * t * s.n * s.k / 1e6;
      const double us = graph_us(c.stream, nodes, [&](int i) { c.run(kLaunch, i % copies); });
      const double alone = peak ? graph_us(c.stream, nodes, [&](int i) { c.run(kCublas, i % copies); }) : 0;
      const double tiled = t <= 2048 ? graph_us(c.stream, nodes, [&](int i) { c.run(kTiled, i % copies); }) : 0;
      std::printf("%-12s%-8d%7.1f (%4.0f, %3.0f %%)      %7.1f             ", s.name, t, us, flops / us, peak ? 100 * flops / us / peak : 0, alone);
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
