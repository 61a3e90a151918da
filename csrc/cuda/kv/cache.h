// One layer of a paged KV cache, as docs/plan.md lays it out for CUDA: per KV head K [tokens][D], then V [tokens][D].
#pragma once
#include <cuda_bf16.h>

#include "cuda/kernel.h"

namespace ix::cuda {

constexpr int kMaxHeadWidth = 256;

template <class T>
struct KvCache {
  char* data;
  int64_t block_stride;  // bytes
  int blocks, tokens, heads, width;

  explicit KvCache(const ix_tensor& t)
      : data(static_cast<char*>(t.data)),
        block_stride(t.stride),
        blocks(t.dims[0]),
        tokens(t.dims[1]),
        heads(t.dims[2]),
        width(t.dims[3]) {}
  // K of a head of a block; V lies `half` elements behind
  __device__ T* k(int block, int head) const {
    return reinterpret_cast<T*>(data + block * block_stride) + 2 * half() * head;
  }
  __device__ int64_t half() const { return int64_t(tokens) * width; }
  // K of a slot, nullptr for slots that store nothing
  __device__ T* slot(int slot, int head) const {
    return slot < 0 || slot / tokens >= blocks ? nullptr : k(slot / tokens, head) + int64_t(slot % tokens) * width;
  }
};

__device__ inline float get(const float* from) { return *from; }
__device__ inline float get(const __nv_bfloat16* from) { return __bfloat162float(*from); }

}  // namespace ix::cuda
