// The bf16 products behind linear_bf16.cu: f32 activations times row-major bf16 weights (rows.h), which one layout
// serves them all. Each launches on the stream, allocates nothing there, and rounds the activations to bf16; sums are
// f32.
#pragma once
#include "cuda/linear/rows.h"
#include "cuda/ptx/launch.h"

namespace ix::cuda {

struct Bf16Product {
  Product p;
  const __nv_bfloat16* w;
  int64_t w_stride;  // elements; rows are zero from k to the next multiple of 64
  __nv_bfloat16* x;  // the activations rounded, zero from k to x_stride, a multiple of 64: written by round_activations
  int64_t x_stride;
};

// At most kStreamTokens tokens, on sm_90: weights by the copy engine, wgmma. Up to kStreamFloats tokens it reads the
// f32 activations itself, beyond that the rounded ones. False: not possible here, nothing was launched.
constexpr int kStreamTokens = 64, kStreamFloats = 16;
bool reads_floats(const Bf16Product& product);
bool stream_weights(ix_stream* stream, const Gpu& gpu, const Bf16Product& product);

// At most kRingTokens tokens, on any GPU: mma.sync, weights through private rings of shared memory.
constexpr int kRingTokens = 16;
void stream_weights_ring(ix_stream* stream, const Gpu& gpu, const Bf16Product& product);

// Any number of tokens. cuBLASLt is opened when first asked for; false: it is missing or knows no way.
constexpr size_t kCublasWorkspace = 32 << 20;
bool cublaslt_product(ix_stream* stream, const Gpu& gpu, const Bf16Product& product, void* workspace);
void tiled_product(ix_stream* stream, const Gpu& gpu, const Bf16Product& product);

}  // namespace ix::cuda
