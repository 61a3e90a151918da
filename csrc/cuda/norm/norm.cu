// rms_norm, layer_norm, add_rms_norm: see docs/plan.md. A block for each group of a row.
#include "cuda/kernel.h"

namespace {
using namespace ix::cuda;

int threads_for(int width) { return width >= 1024 ? 256 : width >= 256 ? 128 : 32; }

// y = (x - mean) / sqrt(mean((x - mean)^2) + eps) * w + b; the mean is 0 for an RMS norm
template <bool kCentered>
__global__ void norm_kernel(Floats x, Floats y, const float* w, const float* b, int groups, int width, float eps) {
  const int row = blockIdx.x / groups, first = blockIdx.x % groups * width;
  const float* from = x[row] + first;
  float *to = y[row] + first, mean = 0, squares = 0;
  if (kCentered) {
    for (int c = threadIdx.x; c < width; c += blockDim.x) mean += from[c];
    mean = block_sum(mean) / float(width);
  }
  for (int c = threadIdx.x; c < width; c += blockDim.x) squares += (from[c] - mean) * (from[c] - mean);
  const float factor = 1.0f / sqrtf(block_sum(squares) / float(width) + eps);
  for (int c = threadIdx.x; c < width; c += blockDim.x)
    to[c] = (from[c] - mean) * factor * (w ? w[c] : 1.0f) + (b ? b[c] : 0.0f);
}

__global__ void add_norm_kernel(Floats a, Floats b, const float* w, Floats sum, Floats y, int width, float eps) {
  const int row = blockIdx.x;
  float squares = 0;
  for (int c = threadIdx.x; c < width; c += blockDim.x) {
    const float v = a[row][c] + b[row][c];
    sum[row][c] = v;
    squares += v * v;
  }
  const float factor = 1.0f / sqrtf(block_sum(squares) / float(width) + eps);
  for (int c = threadIdx.x; c < width; c += blockDim.x) y[row][c] = sum[row][c] * factor * w[c];
}

template <bool kCentered>
void launch(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor &x = call->operands[0], &y = call->operands[kCentered ? 3 : 2];
  const int groups = int(call->attrs[0].i), width = x.dims[1] / groups;
  if (x.dims[0] <= 0) return;
  norm_kernel<kCentered><<<x.dims[0] * groups, threads_for(width), 0, stream->handle>>>(
      Floats(x), Floats(y), static_cast<const float*>(call->operands[1].data),
      kCentered ? static_cast<const float*>(call->operands[2].data) : nullptr, groups, width, float(call->attrs[1].f));
}

void launch_add(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor* t = call->operands;
  if (t[0].dims[0] <= 0) return;
  add_norm_kernel<<<t[0].dims[0], threads_for(t[0].dims[1]), 0, stream->handle>>>(
      Floats(t[0]), Floats(t[1]), static_cast<const float*>(t[2].data), Floats(t[3]), Floats(t[4]), t[0].dims[1],
      float(call->attrs[0].f));
}
}  // namespace

IX_KERNEL(rms_norm, "rms_norm(x: f32[T,D], w?: f32[D], groups: i32, eps: f32) -> f32[T,D]", "", launch<false>, nullptr)
IX_KERNEL(layer_norm, "layer_norm(x: f32[T,D], w?: f32[D], b?: f32[D], groups: i32, eps: f32) -> f32[T,D]", "",
          launch<true>, nullptr)
IX_KERNEL(add_rms_norm, "add_rms_norm(a: f32[T,D], b: f32[T,D], w: f32[D], eps: f32) -> f32[T,D], f32[T,D]", "",
          launch_add, nullptr)
