// rms_norm, layer_norm, add_rms_norm: see docs/plan.md. A block for each group of a row, which it keeps in registers.
// Operands and results are f32 or bf16, the arithmetic is f32.
#include "cuda/vector.h"

namespace {
using namespace ix::cuda;
using Bf16 = __nv_bfloat16;
enum Kind { kRms, kLayer, kAdd };

template <class X, class Y>
struct Norm {
  Rows<float> a;  // of kAdd alone: a + x is normed, and written to sum
  Rows<X> x;
  Rows<float> sum;
  Rows<Y> y;
  const float *w, *b;
  int groups, width;
  float eps;
};

// The block's sum of what its threads have of each vector that they hold, warp by warp of vectors: the same bits
// however many a thread holds, so those of a row do not depend on the number of rows.
template <int kHeld>
__device__ float sum_in_order(float (&parts)[kHeld]) {
  __shared__ float sums[32 * kHeld];
  const int warps = blockDim.x / 32;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    const float part = warp_sum(parts[i]);
    if (threadIdx.x % 32 == 0) sums[i * warps + threadIdx.x / 32] = part;
  }
  __syncthreads();
  float sum = 0;
  for (int i = threadIdx.x % 32; i < warps * kHeld; i += 32) sum += sums[i];
  return warp_sum(sum);
}

// y = (x - mean) / sqrt(mean((x - mean)^2) + eps) * w + b; the mean is 0 but for a layer norm. A thread keeps kHeld
// vectors; of wider rows it reads the rest again.
template <Kind kKind, int N, int kHeld, class X, class Y>
__global__ void __launch_bounds__(1024) norm_kernel(Norm<X, Y> p) {
  allow_next_kernel();
  const int row = blockIdx.x / p.groups, first = (blockIdx.x - row * p.groups) * p.width, step = blockDim.x * N,
            start = threadIdx.x * N;
  Vector<N> held[kHeld], w[kHeld];
  if (p.w) {  // weights are older than all kernels
#pragma unroll
    for (int i = 0; i < kHeld; i++)
      if (start + i * step < p.width) w[i] = load<N>(p.w + start + i * step);
  }
  wait_for_earlier_kernels();
  const X* x = p.x[row] + first;
  float* sum = kKind == kAdd ? p.sum[row] : nullptr;
#pragma unroll
  for (int i = 0; i < kHeld; i++)
    if (start + i * step < p.width) held[i] = load<N>(x + start + i * step);
  if constexpr (kKind == kAdd) {
    const float* a = p.a[row];
    const auto add = [](float s, float t) { return s + t; };
    Vector<N> other[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; i++)
      if (start + i * step < p.width) other[i] = load<N>(a + start + i * step);
#pragma unroll
    for (int i = 0; i < kHeld; i++)
      if (start + i * step < p.width) store(sum + start + i * step, held[i] = map(add, other[i], held[i]));
    for (int c = start + kHeld * step; c < p.width; c += step) store(sum + c, map(add, load<N>(a + c), load<N>(x + c)));
  }
  // f(column, values, number of the held vector or -1)
  const auto each = [&](auto f) {
#pragma unroll
    for (int i = 0; i < kHeld; i++)
      if (start + i * step < p.width) f(start + i * step, held[i], i);
    for (int c = start + kHeld * step; c < p.width; c += step)
      f(c, kKind == kAdd ? load<N>(sum + c) : load<N>(x + c), -1);
  };
  float mean = 0, squares[kHeld] = {};
  if constexpr (kKind == kLayer) {
    float parts[kHeld] = {};
    each([&](int, const Vector<N>& v, int i) {
#pragma unroll
      for (int j = 0; j < N; j++) parts[i < 0 ? 0 : i] += v.v[j];
    });
    mean = sum_in_order(parts) / float(p.width);
  }
  each([&](int, const Vector<N>& v, int i) {
#pragma unroll
    for (int j = 0; j < N; j++) squares[i < 0 ? 0 : i] += (v.v[j] - mean) * (v.v[j] - mean);
  });
  const float factor = 1.0f / sqrtf(sum_in_order(squares) / float(p.width) + p.eps);
  Y* y = p.y[row] + first;
  each([&](int c, const Vector<N>& v, int i) {
    Vector<N> normed = map([&](float value) { return (value - mean) * factor; }, v);
    if (p.w) normed = map([](float s, float t) { return s * t; }, normed, i < 0 ? load<N>(p.w + c) : w[i]);
    if (kKind == kLayer && p.b) normed = map([](float s, float t) { return s + t; }, normed, load<N>(p.b + c));
    store(y + c, normed);
  });
}

// Few rows: many threads with little each. Many: enough to keep memory busy, and cheap sums over the block.
template <Kind kKind, class X, class Y>
void run(ix_stream* stream, const Norm<X, Y>& p, int rows, bool fours) {
  const int blocks = rows * p.groups, units = fours ? p.width / 4 : p.width;
  if (blocks <= 0) return;
  const Gpu gpu = current_gpu();
  const bool few = fours && units <= 2048 && (units <= 128 || blocks < 2 * gpu.sms);
  const int threads = divide_up(units, few ? 64 : 128) * 32, block = threads < 1024 ? threads : 1024;
  if (few)
    launch_kernel<norm_kernel<kKind, 4, 2, X, Y>>(stream, gpu, blocks, block, 0, 1, p);
  else if (fours)
    launch_kernel<norm_kernel<kKind, 4, 4, X, Y>>(stream, gpu, blocks, block, 0, 1, p);
  else
    launch_kernel<norm_kernel<kKind, 1, 4, X, Y>>(stream, gpu, blocks, block, 0, 1, p);
}

bool takes_fours(const void* vector) { return reinterpret_cast<uintptr_t>(vector) % 16 == 0; }

template <Kind kKind, class X, class Y>
void launch(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor *t = call->operands, &y = t[kKind == kLayer ? 3 : 2];
  const int groups = int(call->attrs[0].i);
  const Norm<X, Y> p{Floats(ix_tensor{}),
                     Rows<X>(t[0]),
                     Floats(ix_tensor{}),
                     Rows<Y>(y),
                     static_cast<const float*>(t[1].data),
                     kKind == kLayer ? static_cast<const float*>(t[2].data) : nullptr,
                     groups,
                     t[0].dims[1] / groups,
                     float(call->attrs[1].f)};
  run<kKind>(stream, p, t[0].dims[0], takes_fours(p.width, p.x, p.y) && takes_fours(p.w) && takes_fours(p.b));
}

template <class X, class Y>
void launch_add(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor* t = call->operands;
  const Norm<X, Y> p{Floats(t[0]),
                     Rows<X>(t[1]),
                     Floats(t[3]),
                     Rows<Y>(t[4]),
                     static_cast<const float*>(t[2].data),
                     nullptr,
                     1,
                     t[0].dims[1],
                     float(call->attrs[0].f)};
  run<kAdd>(stream, p, t[0].dims[0], takes_fours(p.width, p.a, p.x, p.sum, p.y) && takes_fours(p.w));
}
}  // namespace

#define IX_RMS_NORM(X, Y) "rms_norm(x: " X "[T,D], w?: f32[D], groups: i32, eps: f32) -> " Y "[T,D]"
#define IX_LAYER_NORM(Y) "layer_norm(x: f32[T,D], w?: f32[D], b?: f32[D], groups: i32, eps: f32) -> " Y "[T,D]"
#define IX_ADD_RMS_NORM(X, Y) "add_rms_norm(a: f32[T,D], b: " X "[T,D], w: f32[D], eps: f32) -> f32[T,D], " Y "[T,D]"

IX_KERNEL(rms_norm, IX_RMS_NORM("f32", "f32"), "", (launch<kRms, float, float>), nullptr)
IX_KERNEL(rms_norm_to_bf16, IX_RMS_NORM("f32", "bf16"), "", (launch<kRms, float, Bf16>), nullptr)
IX_KERNEL(rms_norm_bf16, IX_RMS_NORM("bf16", "bf16"), "", (launch<kRms, Bf16, Bf16>), nullptr)
IX_KERNEL(layer_norm, IX_LAYER_NORM("f32"), "", (launch<kLayer, float, float>), nullptr)
IX_KERNEL(layer_norm_to_bf16, IX_LAYER_NORM("bf16"), "", (launch<kLayer, float, Bf16>), nullptr)
IX_KERNEL(add_rms_norm, IX_ADD_RMS_NORM("f32", "f32"), "", (launch_add<float, float>), nullptr)
IX_KERNEL(add_rms_norm_to_bf16, IX_ADD_RMS_NORM("f32", "bf16"), "", (launch_add<float, Bf16>), nullptr)
IX_KERNEL(add_rms_norm_bf16, IX_ADD_RMS_NORM("bf16", "bf16"), "", (launch_add<Bf16, Bf16>), nullptr)
