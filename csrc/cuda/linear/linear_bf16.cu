// linear with bf16 arithmetic over row_bf16 weights: chooses the product by the number of tokens, which only the launch
// knows.
#include "cuda/linear/bf16.h"
#include "cuda/ptx/async.cuh"

namespace {
using namespace ix::cuda;

__global__ void round_kernel(Bf16Product product) {
  wait_for_earlier_kernels();
  allow_next_kernel();
  const Product& p = product.p;
  const int per_row = int(product.x_stride / 4);
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < int64_t(p.tokens) * per_row;
       i += int64_t(gridDim.x) * blockDim.x) {
    const int64_t token = i / per_row;
    const int k = int(i % per_row) * 4;
    const float* from = p.x + token * p.x_stride;
    float v[4];
#pragma unroll
    for (int j = 0; j < 4; j++) v[j] = k + j < p.k ? __ldcg(from + k + j) : 0.0f;
    const __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(v[0], v[1]), __floats2bfloat162_rn(v[2], v[3])};
    *reinterpret_cast<uint2*>(product.x + token * product.x_stride + k) = *reinterpret_cast<const uint2*>(pairs);
  }
}

void round_activations(ix_stream* stream, const Gpu& gpu, const Bf16Product& product) {
  const int blocks = divide_up(product.p.tokens * product.x_stride / 4, 256), most = gpu.sms * 8;
  launch_kernel<round_kernel>(stream, gpu, blocks < most ? blocks : most, 256, 0, 1, product);
}

int64_t rounded_stride(int64_t k) { return (k + 63) / 64 * 64; }
size_t rounded_bytes(int64_t tokens, int64_t k) { return size_t(tokens * rounded_stride(k) * 2 + 255) / 256 * 256; }

void launch(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor &x = call->operands[0], &w = call->operands[1], &y = call->operands[3];
  const int tokens = x.dims[0], n = w.dims[0], k = w.dims[1];
  if (tokens <= 0) return;
  const Gpu gpu = current_gpu();
  const RowWeights<__nv_bfloat16> weights(w.data, n, k);
  const Bf16Product product{{static_cast<const float*>(x.data), x.stride, static_cast<float*>(y.data), y.stride,
                             static_cast<const float*>(call->operands[2].data), tokens, n, k},
                            weights.data,
                            weights.stride,
                            static_cast<__nv_bfloat16*>(call->workspace),
                            rounded_stride(k)};
  if (tokens > kStreamFloats || !reads_floats(product) || gpu.capability != 90) round_activations(stream, gpu, product);
  if (tokens <= kStreamTokens && stream_weights(stream, gpu, product)) return;
  if (tokens <= kRingTokens) return stream_weights_ring(stream, gpu, product);
  if (cublaslt_product(stream, gpu, product, static_cast<char*>(call->workspace) + rounded_bytes(tokens, k))) return;
  tiled_product(stream, gpu, product);
}

size_t workspace(const ix_kernel_call* call, int) {
  const int64_t tokens = call->operands[0].dims[0];
  return rounded_bytes(tokens, call->operands[1].dims[1]) + (tokens > kRingTokens ? kCublasWorkspace : 0);
}
}  // namespace

IX_KERNEL(linear_bf16_fast, "linear(x: f32[T,K], w: row_bf16[N,K], bias?: f32[N]) -> f32[T,N]", "numerics=bf16", launch,
          workspace)
