// Choosing among a row's values without sorting: the best of all, and the value at which a sum of weights is reached,
// found digit by digit. The order everywhere: larger value first, lower token among equals. Sums that decide are of
// whole numbers or of a fixed order, so that neither threads nor other rows change a bit.
#pragma once
#include "cuda/kernel.h"
#include "cuda/ptx/async.cuh"

namespace ix::cuda {

constexpr int kThreads = 256, kBins = 256;

struct Best {
  float value;
  int32_t token;
};
__device__ inline Best nothing() { return {-INFINITY, INT32_MAX}; }
__device__ inline bool before(Best a, Best b) { return a.value > b.value || (a.value == b.value && a.token < b.token); }
__device__ inline Best better(Best a, Best b) { return before(b, a) ? b : a; }

// Whole numbers in the order of the floats; 0 and -0 are one.
__device__ inline uint32_t order_key(float x) {
  const uint32_t bits = __float_as_uint(x == 0 ? 0.0f : x);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ inline float order_value(uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7FFFFFFFu : ~key);
}

// A histogram's sums are kept in two words, of the weights' upper and lower 16 bits: at most kSegment weights enter
// one.
struct Histogram {
  uint32_t high[kBins], low[kBins];
};
constexpr int kSegment = 65536;

// The blocks that share a row; one: this block alone. Every block makes the same calls in the same order.
template <int kBlocks>
struct Team {
  Histogram* histograms;  // [2] in shared memory, at one place in all blocks
  uint32_t rank;
  int turn = 0;  // what one exchange reads is written again two exchanges later

  __device__ static void meet() {
#if __CUDA_ARCH__ >= 900
    if constexpr (kBlocks > 1) return cluster_sync();
#endif
    __syncthreads();
  }
  // `p` in the shared memory of another block of the team
  template <class T>
  __device__ static T* of(T* p, uint32_t rank) {
    if constexpr (kBlocks > 1) {
#if __CUDA_ARCH__ >= 900
      uint64_t there;
      asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(p), "r"(rank));
      return reinterpret_cast<T*>(there);
#endif
    }
    return p;
  }

  // x of all threads, combined; every thread gets the result.
  template <class T, class F>
  __device__ T reduce(T x, T neutral, F combine) {
    __shared__ T slots[2], parts[kThreads / 32];
    for (int offset = 16; offset > 0; offset /= 2) x = combine(x, exchange(x, offset));
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = threadIdx.x % 32 < kThreads / 32 ? parts[threadIdx.x % 32] : neutral;
    for (int offset = kThreads / 64; offset > 0; offset /= 2) x = combine(x, exchange(x, offset));
    if constexpr (kBlocks > 1) {
      if (threadIdx.x == 0) slots[turn] = x;
      meet();
      x = threadIdx.x % 32 < kBlocks ? *of(&slots[turn], threadIdx.x % 32) : neutral;
      for (int offset = kBlocks / 2; offset > 0; offset /= 2) x = combine(x, exchange(x, offset));
      turn ^= 1;
    }
    __syncthreads();  // the parts may be written again
    return from_first(x);
  }
  __device__ uint64_t sum(uint64_t x) {
    return reduce(x, uint64_t(0), [](uint64_t a, uint64_t b) { return a + b; });
  }
  __device__ Best best(Best x) { return reduce(x, nothing(), better); }

  // Others may use this block's memory no more, nor may this block use theirs; it need not wait for them.
  __device__ static void leave() {
#if __CUDA_ARCH__ >= 900
    if constexpr (kBlocks > 1) asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
  }

  // One histogram of all blocks: bin kBins - 1 - threadIdx.x, so that threads go from large keys to small ones; threads
  // past the bins get 0. add(histogram, first, count) adds what the block has in first ... first + count - 1 < n.
  template <class Add>
  __device__ uint64_t collect(int n, Add add) {
    const int bin = kBins - 1 - int(threadIdx.x);
    Histogram& mine = histograms[turn];
    uint64_t total = 0;
    for (int first = 0; first == 0 || first < n; first += kSegment) {
      if (bin >= 0) mine.high[bin] = mine.low[bin] = 0;
      __syncthreads();
      add(mine, first, min(n - first, kSegment));
      meet();
      for (int r = 0; r < kBlocks && bin >= 0; r++) {
        const Histogram* its = of(&mine, r);
        total += (uint64_t(its->high[bin]) << 16) + its->low[bin];
      }
      if constexpr (kBlocks == 1) __syncthreads();
    }
    turn ^= 1;
    return total;
  }

 private:
  template <class T>
  __device__ static T exchange(const T& x, int offset) {
    return shuffled(x, threadIdx.x % 32 ^ offset);
  }
  template <class T>
  __device__ static T from_first(const T& x) {
    return shuffled(x, 0);
  }
  template <class T>
  __device__ static T shuffled(const T& x, int lane) {
    static_assert(sizeof(T) % 4 == 0);
    T y;
    const uint32_t* from = reinterpret_cast<const uint32_t*>(&x);
    uint32_t* to = reinterpret_cast<uint32_t*>(&y);
#pragma unroll
    for (size_t i = 0; i < sizeof(T) / 4; i++) to[i] = __shfl_sync(~0u, from[i], lane);
    return y;
  }
};

// x of this thread and those before it; *all: of all threads
__device__ inline uint64_t block_scan(uint64_t x, uint64_t* all) {
  __shared__ uint64_t warps[kThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int o = 1; o < 32; o *= 2) {
    const uint64_t other = __shfl_up_sync(~0u, x, o);
    if (lane >= o) x += other;
  }
  if (lane == 31) warps[warp] = x;
  __syncthreads();
  *all = 0;
  for (int w = 0; w < kThreads / 32; w++) {
    if (w < warp) x += warps[w];
    *all += warps[w];
  }
  __syncthreads();  // they may be written again
  return x;
}

struct Selection {
  uint32_t key;
  uint64_t before, at;  // weight of larger keys, of equal ones
};

// Among the i < n of all blocks that are `in`, the largest key at which the weights of keys at least as large reach
// `wanted` (the smallest key of a weight if they never do). All their keys lie in least ... most: what these have in
// common need not be searched.
template <class Members, class Key, class In, class Weight>
__device__ Selection select(Members& team, int n, uint64_t wanted, uint32_t least, uint32_t most, Key key, In in,
                            Weight weight) {
  __shared__ Selection found;
  const int lane = threadIdx.x % 32, bits = 32 - __clz(least ^ most);
  if (threadIdx.x == 0) found = {most & ~((bits < 32 ? 1u << bits : 0u) - 1), 0, 0};
  __syncthreads();
  for (int shift = max(bits - 8, 0), top = bits;; top = shift, shift = max(shift - 8, 0)) {
    const Selection last = found;
    const uint32_t digits = (1u << (top - shift)) - 1, known = top < 32 ? ~0u << top : 0u;
    const uint64_t mine = team.collect(n, [&](Histogram& h, int first, int count) {
      for (int i0 = 0; i0 < count; i0 += kThreads) {  // whole warps: equal digits are added before they meet
        const int i = first + i0 + threadIdx.x;
        uint32_t k = 0;
        bool mine = i0 + int(threadIdx.x) < count && in(i);
        if (mine) {
          k = key(i);
          mine = ((k ^ last.key) & known) == 0;
        }
        const uint32_t those = __ballot_sync(~0u, mine);
        if (those == 0) continue;
        const uint32_t digit = k >> shift & digits, first_digit = __shfl_sync(~0u, digit, __ffs(those) - 1);
        const uint64_t w = mine ? weight(i) : 0;
        if (__all_sync(~0u, !mine || digit == first_digit)) {
          const uint32_t high = __reduce_add_sync(~0u, uint32_t(w >> 16)),
                         low = __reduce_add_sync(~0u, uint32_t(w & 0xFFFF));
          if (lane == 0) atomicAdd(&h.high[first_digit], high), atomicAdd(&h.low[first_digit], low);
        } else if (mine) {
          if (w >> 16) atomicAdd(&h.high[digit], uint32_t(w >> 16));
          atomicAdd(&h.low[digit], uint32_t(w & 0xFFFF));
        }
      }
    });
    uint64_t all;
    const uint64_t sum = block_scan(mine, &all);
    if (top == bits) wanted = min(wanted, all);
    const uint64_t left = wanted - last.before;
    if (mine > 0 && sum >= left && sum - mine < left)
      found = {last.key | uint32_t(kBins - 1 - threadIdx.x) << shift, last.before + sum - mine, mine};
    __syncthreads();
    if (shift == 0) break;
  }
  const Selection result = found;
  __syncthreads();
  return result;
}

}  // namespace ix::cuda
