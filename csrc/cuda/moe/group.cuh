// Grouping the pairs of a step by expert, by one block; and the tile that an item of the resulting work stands for.
// Both ways keep the order of the pairs, so that blocks which group each for itself agree.
#pragma once
#include <limits.h>

#include "cuda/moe/grouped.h"

namespace ix::cuda {

// counts: (warps + 1) * num_experts ints in shared memory; the first `warps` warps take a part of the pairs each. The
// results go to g's workspace.
__device__ inline void group_pairs(const GroupedProduct& g, int chunk_tokens, int warps, int* counts) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, num_experts = g.num_experts, pairs = g.pairs();
  int *mine = counts + warp * num_experts, *totals = counts + warps * num_experts;
  const int part = (pairs + warps - 1) / warps, first = warp * part,
            end = warp < warps ? min(first + part, pairs) : first;
  for (int i = threadIdx.x; i < warps * num_experts; i += blockDim.x) counts[i] = 0;
  __syncthreads();
  // visit(pair, expert, place among this warp's pairs of the expert)
  auto walk = [&](auto visit) {
    constexpr int kTogether = 8;  // loads in flight
    for (int i = first; i < end; i += kTogether * 32) {
      int experts[kTogether];
#pragma unroll
      for (int j = 0; j < kTogether; j++) experts[j] = i + j * 32 + lane < end ? g.expert(i + j * 32 + lane) : -1;
#pragma unroll
      for (int j = 0; j < kTogether; j++) {
        const int expert = experts[j];
        const uint32_t same = __match_any_sync(~0u, expert);
        const int before = __popc(same & ((1u << lane) - 1));
        if (expert >= 0) visit(i + j * 32 + lane, expert, mine[expert] + before);
        __syncwarp();
        if (expert >= 0 && before == 0) mine[expert] += __popc(same);
        __syncwarp();
      }
    }
  };
  walk([](int, int, int) {});
  __syncthreads();
  for (int e = threadIdx.x; e < num_experts; e += blockDim.x) {
    int total = 0;
    for (int w = 0; w < warps; w++) {
      const int count = counts[w * num_experts + e];
      counts[w * num_experts + e] = total;
      total += count;
    }
    totals[e] = total;
  }
  __syncthreads();
  if (warp == 0) {
    int pairs_before = 0, chunks_before = 0;
    for (int base = 0; base < num_experts; base += 32) {
      const int e = base + lane, count = e < num_experts ? totals[e] : 0,
                parts = (count + chunk_tokens - 1) / chunk_tokens;
      int last_pair = count, last_chunk = parts;  // inclusive sums over the lanes
      for (int offset = 1; offset < 32; offset *= 2) {
        const int a = __shfl_up_sync(~0u, last_pair, offset), b = __shfl_up_sync(~0u, last_chunk, offset);
        if (lane >= offset) last_pair += a, last_chunk += b;
      }
      const int begin = pairs_before + last_pair - count, chunk = chunks_before + last_chunk - parts;
      if (e < num_experts) totals[e] = begin;
      for (int i = 0; i < parts; i++) g.chunks[chunk + i] = {e, begin, count, chunk};
      pairs_before += __shfl_sync(~0u, last_pair, 31);
      chunks_before += __shfl_sync(~0u, last_chunk, 31);
    }
    if (lane == 0) g.totals[0] = chunks_before, g.totals[1] = pairs_before;
  }
  __syncthreads();
  walk([&](int pair, int expert, int place) { g.order[totals[expert] + place] = pair; });
}

// The same for a few pairs, at once: each is compared with all. experts: an int a pair in shared memory, where the
// results are, too. Returns the number of chunks.
__device__ inline int group_few_pairs(const GroupedProduct& g, int chunk_tokens, int* experts, ExpertPairs* chunks,
                                      int* order) {
  __shared__ int found;
  const int pairs = g.pairs(), lane = threadIdx.x % 32;
  for (int i = threadIdx.x; i < pairs; i += blockDim.x) experts[i] = g.expert(i) < 0 ? INT_MAX : g.expert(i);
  __syncthreads();
  for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
    const int expert = experts[i];
    int smaller = 0, before = 0, count = 0;
    for (int j = 0; j < pairs; j++) {
      const int other = experts[j];
      smaller += other < expert;
      before += other == expert && j < i;
      count += other == expert;
    }
    const bool starts = expert != INT_MAX && before % chunk_tokens == 0;
    order[smaller + before] = i;
    chunks[smaller + before] = {starts ? expert : -1, smaller, count, before / chunk_tokens};
  }
  __syncthreads();
  if (threadIdx.x < 32) {  // the places where a chunk starts move together
    int chunk = 0;
    for (int base = 0; base < pairs; base += 32) {
      ExpertPairs e{-1, 0, 0, 0};
      if (base + lane < pairs) e = chunks[base + lane];
      const uint32_t starts = __ballot_sync(~0u, e.expert >= 0);
      const int number = chunk + __popc(starts & ((1u << lane) - 1));
      if (e.expert >= 0) chunks[number] = {e.expert, e.begin, e.count, number - e.first_chunk};
      chunk += __popc(starts);
      __syncwarp();
    }
    if (lane == 0) found = chunk;
  }
  __syncthreads();
  return found;
}

// Zeros for the pairs without an expert, by warp number `warp` of `warps`.
__device__ inline void zero_missing(const GroupedProduct& g, int warp, int warps) {
  const int lane = threadIdx.x % 32;
  for (int base = warp * 32; base < g.pairs(); base += warps * 32) {
    uint32_t missing = __ballot_sync(~0u, base + lane < g.pairs() && g.expert(base + lane) < 0);
    for (; missing; missing &= missing - 1) {
      const int64_t y = g.output(base + __ffs(missing) - 1);
      for (int c = lane; c < g.n; c += 32) g.store_output(y + c, 0);
    }
  }
}

// The pairs order[first] … order[first + count - 1] times rows from `row` on of the expert; `shares`: other tiles read
// these rows, too.
struct Tile {
  int expert, first, count, row;
  bool shares;
};

// Item number `item`, which belongs to an expert of which `e` tells: tiles of the same weights are neighbours.
__device__ inline Tile tile_of(int item, const ExpertPairs& e, int chunk_tokens, int tile_rows, int row_tiles) {
  const int local = item - e.first_chunk * row_tiles, parts = (e.count + chunk_tokens - 1) / chunk_tokens,
            start = local % parts * chunk_tokens;
  return {e.expert, e.begin + start, min(chunk_tokens, e.count - start), local / parts * tile_rows, parts > 1};
}

}  // namespace ix::cuda
