// The bf16 products behind linear_bf16.cu: bf16 activations times row-major bf16 weights (rows.h), which one layout
// serves them all. Each launches on the stream and allocates nothing there; sums are f32.
#pragma once
#include "cuda/linear/rows.h"
#include "cuda/ptx/launch.h"

namespace ix::cuda {

struct Bf16Product {
  const __nv_bfloat16 *x, *w;  // x: rows at multiples of 16 bytes; w: rows are zero from k to w_stride
  int64_t x_stride, w_stride;  // elements. w_stride is a multiple of 64; x is zero from k to it, or k is one, too
  void* y;                     // f32, or bf16 if `narrow`
  int64_t y_stride;
  const float* bias;
  int tokens, n, k;
  bool narrow;
  bool one_order;  // the sums of an element are taken in one order, whatever the number of tokens
  bool halves;     // x and w are f16 in place of bf16
};

// Sums of neighbouring rows of weights as results of a token.
template <int N>
__device__ inline void store_results(const Bf16Product& p, const float (&sums)[N], int token, int row) {
  float v[N];
#pragma unroll
  for (int i = 0; i < N; i++) v[i] = sums[i] + (p.bias && row + i < p.n ? p.bias[row + i] : 0.0f);
  const int64_t place = token * p.y_stride + row;
  const bool whole = N == 4 && row + N <= p.n && place % 4 == 0;
  if (p.narrow) {
    __nv_bfloat16* y = static_cast<__nv_bfloat16*>(p.y) + place;
    if (whole && reinterpret_cast<uintptr_t>(p.y) % 8 == 0) {
      const __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(v[0], v[N > 1]),
                                       __floats2bfloat162_rn(v[N / 2], v[N - 1])};
      *reinterpret_cast<uint2*>(y) = *reinterpret_cast<const uint2*>(pairs);
      return;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
      if (row + i < p.n) y[i] = __float2bfloat16_rn(v[i]);
  } else {
    float* y = static_cast<float*>(p.y) + place;
    if (whole && reinterpret_cast<uintptr_t>(p.y) % 16 == 0) {
      *reinterpret_cast<float4*>(y) = make_float4(v[0], v[N > 1], v[N / 2], v[N - 1]);
      return;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
      if (row + i < p.n) y[i] = v[i];
  }
}

// At most kStreamTokens tokens, on sm_90: weights and tokens by the copy engine, wgmma. False: not possible here,
// nothing was launched.
constexpr int kStreamTokens = 64;
bool stream_weights(ix_stream* stream, const Gpu& gpu, const Bf16Product& product);

// At most kRingTokens tokens, on any GPU: mma.sync, weights through private rings of shared memory.
constexpr int kRingTokens = 16;
void stream_weights_ring(ix_stream* stream, const Gpu& gpu, const Bf16Product& product);

// Any number of tokens. cuBLASLt is opened when first asked for; false: it is missing or knows no way.
// workspace: cublaslt_workspace(n) bytes.
constexpr size_t kCublasWorkspace = 32 << 20;
inline size_t cublaslt_workspace(int64_t n) { return kCublasWorkspace + size_t(n) * sizeof(__nv_bfloat16); }
bool cublaslt_product(ix_stream* stream, const Gpu& gpu, const Bf16Product& product, void* workspace);
void tiled_product(ix_stream* stream, const Gpu& gpu, const Bf16Product& product);

}  // namespace ix::cuda
