// reduce_sum, reduce_max, softmax: along a row, a block each, see docs/plan.md. A NaN anywhere in a row shows in its
// result.
#include "cuda/kernel.h"

namespace {
using namespace ix::cuda;
constexpr int kThreads = 256;

__device__ float row_max(const Floats& x, int columns) {
  float top = -INFINITY;
  for (int c = threadIdx.x; c < columns; c += kThreads) {
    const float v = x(blockIdx.x, c);
    top = v > top || v != v ? v : top;
  }
  return block_max(top);
}

__global__ void sum_kernel(Floats x, Floats y, int columns) {
  allow_next_kernel();
  wait_for_earlier_kernels();
  float sum = 0;
  for (int c = threadIdx.x; c < columns; c += kThreads) sum += x(blockIdx.x, c);
  sum = block_sum(sum);
  if (threadIdx.x == 0) y[blockIdx.x][0] = sum;
}
__global__ void max_kernel(Floats x, Floats y, int columns) {
  allow_next_kernel();
  wait_for_earlier_kernels();
  const float top = row_max(x, columns);
  if (threadIdx.x == 0) y[blockIdx.x][0] = top;
}
__global__ void softmax_kernel(Floats x, Floats y, int columns) {
  allow_next_kernel();
  wait_for_earlier_kernels();
  const float top = row_max(x, columns), shift = top == -INFINITY ? 0.0f : top;
  float* to = y[blockIdx.x];
  float sum = 0;
  for (int c = threadIdx.x; c < columns; c += kThreads) sum += to[c] = expf(x(blockIdx.x, c) - shift);
  sum = block_sum(sum);
  for (int c = threadIdx.x; c < columns; c += kThreads) to[c] /= sum;
}

template <void (*kKernel)(Floats, Floats, int)>
void launch(ix_stream* stream, const ix_kernel_call* call) {
  const int rows = call->operands[0].dims[0];
  if (rows > 0)
    launch_kernel<kKernel>(stream, current_gpu(), rows, kThreads, 0, 1, Floats(call->operands[0]),
                           Floats(call->operands[1]), call->operands[0].dims[1]);
}
}  // namespace

IX_KERNEL(reduce_sum, "reduce_sum(x: f32[T,D]) -> f32[T,1]", "", launch<sum_kernel>, nullptr)
IX_KERNEL(reduce_max, "reduce_max(x: f32[T,D]) -> f32[T,1]", "", launch<max_kernel>, nullptr)
IX_KERNEL(softmax, "softmax(x: f32[T,D]) -> f32[T,D]", "", launch<softmax_kernel>, nullptr)
