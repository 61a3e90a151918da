// The bf16 products behind moe_linear_bf16.cu: pairs (token, slot) are grouped by expert on the device, and a tile
// multiplies a chunk of one expert's pairs with some of its rows. Activations are rounded to bf16, sums are f32 in one
// order of k, whatever the tile: results do not depend on what else is in the batch.
#pragma once
#include "cuda/linear/rows.h"
#include "cuda/vector.h"

#define IX_MOE_LINEAR(X, W, Y) \
  "moe_linear(x: " X "[T,K], experts: i32[T,k], w: " W "[E,N,K], per_slot: i32) -> " Y "[T,M]"

namespace ix::cuda {

// What a chunk tells of its expert: its pairs are `count` places of the order from `begin` on, its first chunk is
// number `first_chunk`.
struct ExpertPairs {
  int expert, begin, count, first_chunk;
};

struct GroupedProduct {
  const void* x;  // f32 or bf16, as y
  void* y;
  int64_t x_stride, y_stride;
  Ints experts;
  int tokens, slots, num_experts, n, k;
  bool x_bf16, y_bf16, per_slot;
  const __nv_bfloat16* w;
  int64_t w_stride, expert_rows;  // rows are zero from k to w_stride; an expert's rows end with a whole panel
  // Written by sort_pairs: the numbers of chunks and of pairs with an expert, a record for each chunk, those pairs in
  // the order of their experts, and their activations in that order as bf16, w_stride apart, zero from k on.
  int* totals;
  ExpertPairs* chunks;
  int* order;
  __nv_bfloat16* sorted;

  __host__ __device__ int pairs() const { return tokens * slots; }
  __device__ int expert(int pair) const {  // -1: none
    const int e = experts(pair / slots, pair % slots);
    return e >= 0 && e < num_experts ? e : -1;
  }
  __device__ int64_t input(int pair) const {
    return pair / slots * x_stride + (per_slot ? int64_t(pair % slots) * k : 0);
  }
  // N activations; 4 must be aligned
  template <int N>
  __device__ Vector<N> load_input(int64_t at) const {
    return x_bf16 ? load<N>(static_cast<const __nv_bfloat16*>(x) + at) : load<N>(static_cast<const float*>(x) + at);
  }
  __device__ int64_t output(int pair) const { return pair / slots * y_stride + int64_t(pair % slots) * n; }
  __device__ void store_output(int64_t at, float value) const {
    if (y_bf16)
      static_cast<__nv_bfloat16*>(y)[at] = __float2bfloat16_rn(value);
    else
      static_cast<float*>(y)[at] = value;
  }
};

// With its parts of the call's workspace.
GroupedProduct grouped_product(const ix_kernel_call* call, bool x_bf16, bool y_bf16);

// Chunks of at most `tokens` pairs: no more than these.
inline int most_chunks(const GroupedProduct& g, int tokens) {
  const int experts = g.num_experts < g.pairs() ? g.num_experts : g.pairs(), whole = g.pairs() / tokens + experts;
  return whole < g.pairs() ? whole : g.pairs();
}

void sort_pairs(ix_stream* stream, const Gpu& gpu, const GroupedProduct& g, int chunk_tokens);

// On sm_90, for chunks of kDirectTokens (which needs no sort_pairs, where `groups_itself`) or of kManyTokens. False:
// not possible here, nothing was launched.
constexpr int kDirectTokens = 16, kManyTokens = 192;
bool groups_itself(const GroupedProduct& g);
bool grouped_wgmma(ix_stream* stream, const Gpu& gpu, const GroupedProduct& g, int chunk_tokens);

// On any GPU, for chunks of 16 or 128 tokens.
void grouped_mma(ix_stream* stream, const Gpu& gpu, const GroupedProduct& g, int chunk_tokens);

}  // namespace ix::cuda
