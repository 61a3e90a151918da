// What a CUDA kernel file uses: how it registers itself, the stream, and launches over rows and columns. Every file
// under csrc/cuda/<family>/ is compiled for all GPU architectures; CMake collects the entries by scanning for the
// macros.
#pragma once
#include "cuda/ptx/async.cuh"
#include "cuda/ptx/launch.h"
#include "cuda/stream.h"

// IX_KERNEL(name, signature, tags, launch, workspace), IX_LAYOUT(name, layout): as in csrc/cpu/kernel.h. One table
// entry each, at file scope and at the start of a line. A launch that fails is remembered with its name.
#define IX_KERNEL(name, signature, tags, launch, workspace)                     \
  static void ix_launch_##name(ix_stream* stream, const ix_kernel_call* call) { \
    launch(stream, call);                                                       \
    ix::cuda::check_launch(stream, #name);                                      \
  }                                                                             \
  extern const ix_kernel ix_kernel_##name##_cuda;                               \
  const ix_kernel ix_kernel_##name##_cuda = {signature, tags, __FILE_NAME__, ix_launch_##name, workspace};

#define IX_LAYOUT(name, ...)                      \
  extern const ix_layout ix_layout_##name##_cuda; \
  const ix_layout ix_layout_##name##_cuda = __VA_ARGS__;

namespace ix::cuda {

// A table of rows as a kernel gets it. x(row, column) reads past L1: under dependent launch, a line cached there by an
// older kernel may be stale.
template <class T>
struct Rows {
  T* data;
  int64_t stride;
  explicit Rows(const ix_tensor& t) : data(static_cast<T*>(t.data)), stride(t.stride) {}
  __device__ T* operator[](int64_t row) const { return data + row * stride; }
  __device__ T operator()(int64_t row, int64_t column) const { return __ldcg(data + row * stride + column); }
};
using Floats = Rows<float>;
using Ints = Rows<int32_t>;

inline int divide_up(int64_t a, int64_t b) { return int((a + b - 1) / b); }

template <class F>
__global__ void elements_kernel(int columns, int blocks_per_row, F f) {
  allow_next_kernel();
  wait_for_earlier_kernels();
  const int row = blockIdx.x / blocks_per_row, c = (blockIdx.x - row * blocks_per_row) * blockDim.x + threadIdx.x;
  if (c < columns) f(row, c);
}

// f(row, column) on the device for every element
template <class F>
void for_elements(ix_stream* stream, int rows, int columns, F f) {
  if (rows <= 0 || columns <= 0) return;
  const int threads = columns >= 256 ? 256 : divide_up(columns, 32) * 32, blocks = divide_up(columns, threads);
  launch_kernel<elements_kernel<F>>(stream, current_gpu(), rows * blocks, threads, 0, 1, columns, blocks, f);
}

__device__ inline float warp_sum(float x) {
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
  return x;
}
__device__ inline float warp_max(float x) {
  for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, offset));
  return x;
}

// The same for the whole block, whose threads are whole warps; every thread gets the result, always of the same order.
template <class T, class F>
__device__ T block_reduce(T x, T neutral, F combine) {
  __shared__ T parts[32];
  for (int offset = 16; offset > 0; offset /= 2) x = combine(x, __shfl_xor_sync(~0u, x, offset));
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  x = threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x % 32] : neutral;
  for (int offset = 16; offset > 0; offset /= 2) x = combine(x, __shfl_xor_sync(~0u, x, offset));
  return x;
}
__device__ inline float block_sum(float x) {
  return block_reduce(x, 0.0f, [](float a, float b) { return a + b; });
}
__device__ inline float block_max(float x) {  // a NaN anywhere shows
  return block_reduce(x, -INFINITY, [](float a, float b) { return a > b || a != a ? a : b; });
}

}  // namespace ix::cuda
