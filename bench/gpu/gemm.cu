// Our own large matrix product (csrc/cuda/linear/gemm_bf16.cu) on the GPU: every way to cut it against float64 sums; whether an element's
// bits are the same for every number of tokens, which `deterministic: true` rests on; times beside cuBLASLt's. Arguments: "small" checks a
// few small shapes only (for compute-sanitizer), "shapes" times every way to cut.
#include <cmath>
#include <cstring>

#include "cuda/linear/gemm.h"
#include "measure.cuh"

using namespace ix::cuda;
using Bf16 = __nv_bfloat16;
extern const ix_kernel ix_kernel_linear_ordered_x_cuda;

namespace {
const GemmShape kShapes[] = {{128, 128, 1}, {128, 256, 1}, {192, 128, 1}, {128, 128, 2}, {128, 256, 2}, {192, 128, 2}};

__global__ void clear_padding(Bf16* w, int64_t rows, int64_t stride, int n, int k) {
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < rows * stride; i += int64_t(gridDim.x) * blockDim.x)
    if (i / stride >= n || i % stride >= k) w[i] = 0.0f;
}
// Counts those of each `every` elements that differ from float64 sums by more than rounding explains
__global__ void compare_sums(Bf16Product p, int every, uint32_t* bad) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i >= p.tokens * p.y_stride) return;
  const int64_t token = i / p.y_stride, row = i % p.y_stride;
  const float got = p.narrow ? __bfloat162float(static_cast<Bf16*>(p.y)[i]) : static_cast<float*>(p.y)[i];
  if (row >= p.n) {
    if (got == got) atomicAdd(bad, 1u);  // the padding has been written
    return;
  }
  if ((token * 31 + row) % every != 0) return;
  double sum = p.bias ? p.bias[row] : 0.0, size = 1;
  for (int c = 0; c < p.k; c++) {
    const double product = double(__bfloat162float(p.x[token * p.x_stride + c])) * double(__bfloat162float(p.w[row * p.w_stride + c]));
    sum += product, size += fabs(product);
  }
  if (!(fabs(got - sum) <= 2e-6 * size + (p.narrow ? 4e-3 * fabs(sum) : 0))) atomicAdd(bad, 1u);
}
__global__ void compare_bits(const uint32_t* a, const uint32_t* b, int64_t rows, int64_t stride, int n, uint32_t* differing) {
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < rows * stride; i += int64_t(gridDim.x) * blockDim.x)
    if (i % stride < n && a[i] != b[i]) atomicAdd(differing, 1u);
}

struct Case {
  ix_stream stream = new_stream();
  Gpu gpu = current_gpu();
  int tokens, n, k;
  int64_t x_stride, w_stride, y_stride, rows;
  size_t matrix;
  Memory<Bf16> x, w;
  Memory<float> y, bias;
  Memory<char> workspace;
  Memory<uint32_t> count{1};
  bool with_bias;

  Case(int tokens, int n, int k, int copies, bool with_bias)
      : tokens(tokens), n(n), k(k), x_stride((k + 63) / 64 * 64), w_stride(x_stride), y_stride((n + 31) / 32 * 32), rows((n + 63) / 64 * 64), matrix(size_t(w_stride * rows)),
        x(size_t(tokens * x_stride)), w(matrix * copies), y(size_t(tokens * y_stride)), bias(n), workspace(cublaslt_workspace(n) + x.count * 2 + 256), with_bias(with_bias) {
    x.fill(1, 11 + tokens), w.fill(1, 12 + n), bias.fill(4, 5);
    for (int c = 0; c < copies; c++) clear_padding<<<1024, 256>>>(w.data + c * matrix, rows, w_stride, n, k);
    clear_padding<<<1024, 256>>>(x.data, tokens, x_stride, tokens, k);
    CHECK(cudaDeviceSynchronize());
  }
  ~Case() { cudaStreamDestroy(stream.handle); }
  Bf16Product product(int first, int count, void* to, bool narrow, int copy = 0) const {
    return {x.data + first * x_stride, w.data + copy * matrix, x_stride, w_stride, to, y_stride, with_bias ? bias.data : nullptr, count, n, k, narrow, true};
  }
  uint32_t counted() {
    CHECK(cudaStreamSynchronize(stream.handle));
    return count.get()[0];
  }
};

int check_shapes(bool small) {
  int bad = 0, done = 0, refused = 0;
  struct Size {
    int n, k;
  };
  const std::vector<Size> sizes = small ? std::vector<Size>{{97, 100}, {300, 640}} : std::vector<Size>{{1, 8}, {97, 100}, {200, 384}, {1047, 1153}, {2048, 4096}, {6143, 640}, {20011, 328}};
  for (const Size s : sizes)
    for (int tokens : small ? std::vector<int>{33, 257} : std::vector<int>{1, 65, 128, 200, 257, 700}) {
      Case c(tokens, s.n, s.k, 1, (tokens + s.n) % 2 == 0);
      const int every = int64_t(tokens) * s.n * s.k > 100'000'000 ? 101 : 1;
      for (const GemmShape& shape : kShapes)
        for (bool narrow : {false, true}) {
          if (small && narrow != (shape.split == 2)) continue;
          const Bf16Product p = c.product(0, tokens, c.y.data, narrow);
          c.y.bytes(0xff), c.count.bytes(0);
          CHECK(cudaDeviceSynchronize());
          if (!gemm_product(&c.stream, c.gpu, p, shape)) {
            refused += shape.split == 1 || s.k > 64;
            continue;
          }
          done++;
          compare_sums<<<unsigned((tokens * c.y_stride + 127) / 128), 128, 0, c.stream.handle>>>(p, every, c.count.data);
          const uint32_t wrong = c.counted();
          if (wrong) bad++, std::printf("FAILED tile of %d x %d, split %d: T %d N %d K %d narrow %d: %u wrong\n", shape.rows, shape.tokens, shape.split, tokens, s.n, s.k, narrow, wrong);
        }
    }
  std::printf("gemm: %d checks, %d failed, %d refused\n", done, bad, refused);
  return bad + refused;
}

// Bits of an element for every number of tokens, at any place in the batch, cut in every way
int check_bits() {
  struct Size {
    int n, k;
  };
  int bad = 0;
  for (const Size s : {Size{1047, 1153}, Size{6144, 4096}, Size{4096, 4096}, Size{4096, 14336}, Size{200, 384}, Size{28672, 1024}}) {
    const int all = 2048;
    Case c(all, s.n, s.k, 1, true);
    Memory<float> other(c.y.count);
    gemm_product(&c.stream, c.gpu, c.product(0, all, c.y.data, false), {128, 256, 1});
    uint32_t launched = 0, wgmma = 0, counts = 0;
    c.count.bytes(0);
    CHECK(cudaDeviceSynchronize());
    auto compare = [&](int first, int tokens) {
      compare_bits<<<512, 256, 0, c.stream.handle>>>(reinterpret_cast<uint32_t*>(other.data), reinterpret_cast<uint32_t*>(c.y.data + first * c.y_stride), tokens, c.y_stride, s.n, c.count.data);
    };
    for (const GemmShape& shape : kShapes)
      for (int tokens : {all, 300}) {
        if (shape.split > 1) continue;
        gemm_product(&c.stream, c.gpu, c.product(0, tokens, other.data, false), shape);
        compare(0, tokens), launched++;
      }
    wgmma = c.counted();
    int firsts[4] = {}, first_bad = 0;
    for (int tokens = 1; tokens <= 300; tokens++) {
      const int first = tokens * 37 % 1700;
      const uint32_t before = c.counted();
      const Bf16Product p = c.product(first, tokens, other.data, false);
      ix_tensor tensors[4] = {{const_cast<Bf16*>(p.x), 2, {tokens, s.k}, c.x_stride}, {const_cast<Bf16*>(p.w), 2, {s.n, s.k}, 0}, {c.bias.data, 1, {s.n}, 0}, {other.data, 2, {tokens, s.n}, c.y_stride}};
      const ix_kernel_call call{tensors, nullptr, c.workspace.data};
      ix_kernel_linear_ordered_x_cuda.launch(&c.stream, &call);
      compare(first, tokens), counts++;
      const int differing = int(c.counted() - before);
      firsts[tokens <= 8 ? 0 : tokens <= 16 ? 1 : tokens <= 64 ? 2 : 3] += differing;
      if (differing && !first_bad) first_bad = tokens;
    }
    const bool good = !wgmma && !first_bad && !c.stream.error[0];
    bad += !good;
    std::printf("bits N %d K %d: %u shapes differ in %u elements; of T 1..8, 9..16, 17..64, 65..300 differ %d %d %d %d (first at %d) %s\n", s.n, s.k, launched, wgmma, firsts[0], firsts[1], firsts[2], firsts[3], first_bad, c.stream.error);
  }
  return bad;
}

void times(bool all_shapes) {
  struct Size {
    const char* name;
    int n, k;
  };
  std::printf("TFLOP/s       ours (%% of cuBLASLt)  in one order  cuBLASLt%s\n", all_shapes ? "   best shapes: rows x tokens, split" : "");
  for (const Size& s : {Size{"qkv", 6144, 4096}, Size{"o", 4096, 4096}, Size{"gate-up", 28672, 4096}, Size{"down", 4096, 14336}})
    for (int tokens : {1, 8, 64, 128, 256, 512, 2048, 4096}) {
      const int copies = tokens > 1000 ? 2 : 6;
      Case c(tokens, s.n, s.k, copies, false);
      const double flops = 2.0 * tokens * s.n * s.k / 1e6;
      auto speed = [&](const std::function<bool(int)>& launch) {
        bool good = true;
        const double us = graph_us(c.stream, copies, [&](int i) { good &= launch(i); });
        return good ? flops / us : 0;
      };
      const double library = speed([&](int i) { return cublaslt_product(&c.stream, c.gpu, c.product(0, tokens, c.y.data, true, i), c.workspace.data); });
      auto ours = [&](bool one_order) {
        return speed([&](int i) {
          Bf16Product p = c.product(0, tokens, c.y.data, true, i);
          p.one_order = one_order;
          return tokens <= kStreamTokens ? stream_weights(&c.stream, c.gpu, p) : gemm_product(&c.stream, c.gpu, p, choose_gemm(c.gpu, p));
        });
      };
      const double fast = ours(false), ordered = ours(true);
      auto share = [&](double x) { return library ? 100 * x / library : 0; };
      std::printf("%-8s T %-6d %6.0f (%3.0f %%) %8.0f (%3.0f %%) %6.0f", s.name, tokens, fast, share(fast), ordered, share(ordered), library);
      if (all_shapes) {
        std::vector<std::pair<double, const GemmShape*>> found;
        for (const GemmShape& shape : kShapes) found.push_back({speed([&](int i) { return gemm_product(&c.stream, c.gpu, c.product(0, tokens, c.y.data, true, i), shape); }), &shape});
        std::sort(found.begin(), found.end(), [](auto& a, auto& b) { return a.first > b.first; });
        for (size_t i = 0; i < found.size() && found[i].first > 0; i++) std::printf(" | %.0f: %dx%d %d", found[i].first, found[i].second->rows, found[i].second->tokens, found[i].second->split);
      }
      std::printf("\n");
      std::fflush(stdout);
    }
}
}  // namespace

int main(int argc, char** argv) {
  const bool small = argc > 1 && !std::strcmp(argv[1], "small"), shapes = argc > 1 && !std::strcmp(argv[1], "shapes");
  int bad = check_shapes(small);
  if (!small) bad += check_bits();
  if (!small && (!bad || shapes)) times(shapes);
  return bad != 0;
}
