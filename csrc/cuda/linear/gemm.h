// The bf16 product of many tokens on sm_90a, and how it is cut into tiles.
#pragma once
#include "cuda/linear/bf16.h"

namespace ix::cuda {

// A tile is `rows` of weights x `tokens`: 128 x 128, 128 x 256 or 192 x 128. Two blocks share a tile's K if split is 2.
struct GemmShape {
  int rows, tokens, split;
};

// The quickest one for these sizes; without a split if the product wants one order.
GemmShape choose_gemm(const Gpu& gpu, const Bf16Product& product);

// Any number of tokens. Without a split the sums of an element are taken in the order of k, 16 at a time, and have the
// same bits in every shape and from stream_weights, if the product wants one order. False: not possible here (f16 is
// not), nothing was launched.
bool gemm_product(ix_stream* stream, const Gpu& gpu, const Bf16Product& product, const GemmShape& shape);

}  // namespace ix::cuda
