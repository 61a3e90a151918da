// Choosing among a row's values with one block, without sorting: the best of all, and the value at which a sum of
// weights is reached, found digit by digit. The order everywhere: larger value first, lower token among equals.
#pragma once
#include "cuda/kernel.h"

namespace ix::cuda {

constexpr int kThreads = 1024;

struct Best {
  float value;
  int32_t token;
};
__device__ inline Best nothing() { return {-INFINITY, INT32_MAX}; }
__device__ inline bool before(Best a, Best b) { return a.value > b.value || (a.value == b.value && a.token < b.token); }
__device__ inline Best better(Best a, Best b) { return before(b, a) ? b : a; }
__device__ inline Best block_best(Best mine) {
  __shared__ Best parts[kThreads / 32];
  for (int offset = 16; offset > 0; offset /= 2)
    mine = better(mine, {__shfl_xor_sync(~0u, mine.value, offset), __shfl_xor_sync(~0u, mine.token, offset)});
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = mine;
  __syncthreads();
  mine = nothing();
  for (int i = 0; i < kThreads / 32; i++) mine = better(mine, parts[i]);
  return mine;
}

// Whole numbers in the order of the floats; 0 and -0 are one.
__device__ inline uint32_t order_key(float x) {
  const uint32_t bits = __float_as_uint(x == 0 ? 0.0f : x);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ inline float order_value(uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7FFFFFFFu : ~key);
}

struct Selection {
  uint32_t key;
  uint64_t before;  // weight of larger keys
};

// Among the i < n that are `in`, the largest key at which the weights of keys at least as large reach `wanted` (the
// smallest key if they never do).
template <class Key, class In, class Weight>
__device__ Selection select(int n, uint64_t wanted, Key key, In in, Weight weight) {
  __shared__ unsigned long long sums[256];
  __shared__ Selection found;
  if (threadIdx.x == 0) found = {0, 0};
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = threadIdx.x; i < 256; i += kThreads) sums[i] = 0;
    __syncthreads();
    const uint32_t prefix = found.key;
    for (int i = threadIdx.x; i < n; i += kThreads) {
      const uint32_t k = key(i);
      if (in(i) && (shift == 24 || k >> (shift + 8) == prefix >> (shift + 8)))
        atomicAdd(&sums[k >> shift & 255], weight(i));
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      uint64_t above = found.before, at_digit = above;
      int digit = 0;
      for (int d = 255; d >= 0; d--) {
        if (sums[d] == 0) continue;
        digit = d, at_digit = above;
        above += sums[d];
        if (above >= wanted) break;
      }
      found.key |= uint32_t(digit) << shift;
      found.before = at_digit;
    }
    __syncthreads();
  }
  const Selection result = found;
  __syncthreads();
  return result;
}

}  // namespace ix::cuda
