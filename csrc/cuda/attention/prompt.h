// Attention of many new tokens over a paged kv_bf16 cache: what the kernels for sm_80 on and for sm_90a share, how a
// block finds its work on the device among it. Not here: few new tokens a sequence (decode.h).
#pragma once
#include <cuda_bf16.h>
#include <limits.h>

#include "cuda/kernel.h"
#include "cuda/kv/cache.h"
#include "cuda/ptx/launch.h"

namespace ix::cuda {

constexpr float kLog2e = 1.4426950408889634f;

// A row is a query head of a token: the heads that share a KV head follow each other, then comes the next token.
template <class Out>
struct Prompt {
  Floats q;
  Rows<Out> y;
  Ints table;
  const int32_t *seq_start, *seq_context, *seq_row;
  const float* sinks;
  int sequences, group, window, skipped;  // sequences of at most `skipped` new tokens are served elsewhere
  float scale, softcap;
};

// Any call of `attention` whose scale is positive, as far as alignment and block size allow; else false, and nothing
// was launched. q and the softmax weights are rounded to bf16 as K and V are, sums are f32. A row's result depends on q
// and the positions that it sees, bit for bit: keys are taken in tiles that lie at fixed positions of the sequence, in
// one order, by one block, however the prompt was cut into steps and whatever else the step holds.
template <class Out>
bool prompt_mma(ix_stream* stream, const Gpu& gpu, const Prompt<Out>& p, const KvCache<__nv_bfloat16>& cache,
                int tokens);
// The same for sm_90a, and blocks of 64 positions. Its sums are taken in another order than prompt_mma's.
template <class Out>
bool prompt_wgmma(ix_stream* stream, const Gpu& gpu, const Prompt<Out>& p, const KvCache<__nv_bfloat16>& cache,
                  int tokens);

// At most so many tiles of `rows` rows hold all tokens of sequences with more than `skipped` new ones.
inline int most_tiles(int tokens, int sequences, int group, int skipped, int rows) {
  const int most = tokens / (skipped + 1) < sequences ? tokens / (skipped + 1) : sequences;
  return int(int64_t(tokens) * group / rows) + most;
}

struct PromptTile {
  int sequence, first_token, context;  // the sequence's first token in the step; all of its positions
  int first_row, rows;                 // of the tile; rows of the sequence
  int first, last;                     // positions that the tile's rows see; none if last < 0
  int old;                             // positions before this step
};

// The work of block `index`, for a whole warp: of each sequence the last tile first, for it has the longest context.
// False: there is none.
template <class Out>
__device__ bool find_tile(const Prompt<Out>& p, int index, int tile_rows, PromptTile& tile) {
  constexpr int kEach = 4;  // sequences of a lane
  const int lane = threadIdx.x % 32;
  for (int base = 0; base < p.sequences; base += 32 * kEach) {
    int start[kEach + 1], tiles[kEach], mine = 0;
#pragma unroll
    for (int i = 0; i <= kEach; i++) start[i] = p.seq_start[min(base + lane * kEach + i, p.sequences)];
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      const int tokens = start[i + 1] - start[i];
      tiles[i] = tokens > p.skipped ? (tokens * p.group + tile_rows - 1) / tile_rows : 0;
      mine += tiles[i];
    }
    int end = mine;
#pragma unroll
    for (int o = 1; o < 32; o *= 2) {
      const int other = __shfl_up_sync(~0u, end, o);
      if (lane >= o) end += other;
    }
    const uint32_t behind = __ballot_sync(~0u, end > index);
    if (behind == 0) {
      index -= __shfl_sync(~0u, end, 31);
      continue;
    }
    int i = 0, left = index - (end - mine);
#pragma unroll
    for (int j = 0; j + 1 < kEach; j++)
      if (i == j && left >= tiles[j]) left -= tiles[j], i++;
    const int s = __shfl_sync(~0u, base + lane * kEach + i, __ffs(behind) - 1);
    left = __shfl_sync(~0u, left, __ffs(behind) - 1);
    const int first_token = p.seq_start[s], tokens = p.seq_start[s + 1] - first_token, rows = tokens * p.group,
              context = p.seq_context[s], old = context - tokens;
    const int first_row = ((rows + tile_rows - 1) / tile_rows - 1 - left) * tile_rows;
    const int first_position = old + first_row / p.group, last = old + (min(first_row + tile_rows, rows) - 1) / p.group;
    tile = {s,    first_token, context, first_row, rows, p.window > 0 ? max(0, first_position - p.window + 1) : 0,
            last, old};
    return true;
  }
  return false;
}

// What a thread knows of one of its rows. Rows past the sequence's last are its last again, and are not stored.
struct PromptRow {
  int64_t token;
  int head, last;  // head of the group; the row's position
  bool stored;
};
template <class Out>
__device__ PromptRow find_row(const Prompt<Out>& p, const PromptTile& tile, int row) {
  const int at = min(tile.first_row + row, tile.rows - 1), token = at / p.group;
  return {int64_t(tile.first_token) + token, at % p.group, tile.old + token, tile.first_row + row < tile.rows};
}

__device__ inline float exp2_fast(float x) {  // flushes what is too small for a normal number to zero
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

// softcap * tanh(x / softcap), exact to about 1e-7 of the softcap; `factor` = 2 log2(e) / softcap
__device__ inline float cap_score(float x, float factor, float softcap) {
  return softcap - __fdividef(2 * softcap, exp2_fast(x * factor) + 1);
}

// A running softmax of a row's scores, of which a quad of lanes holds the columns. Returns what earlier sums are to be
// multiplied with; `base` is to be subtracted from the scores in units of log2. A tile of masked positions changes
// nothing.
__device__ inline float raise_top(float& top, float highest, float to_log2, float& base) {
  highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1));
  highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
  const float before = top;
  top = fmaxf(top, highest);
  const float seen = top == -INFINITY ? 0.0f : top;  // so far all positions are masked
  base = seen * to_log2;
  return exp2f((before - seen) * to_log2);  // exactly 1 if the top stays
}

// The factor that turns a row's output into its mean, from the lane's part of the sum
__device__ inline float finish_row(float top, float sum, float to_log2, const float* sink) {
  sum += __shfl_xor_sync(~0u, sum, 1);
  sum += __shfl_xor_sync(~0u, sum, 2);
  if (!sink) return 1.0f / sum;
  const float a = top * to_log2, b = *sink * kLog2e, higher = fmaxf(a, b), keep = exp2f(a - higher);
  return keep / (sum * keep + exp2f(b - higher));
}

__device__ inline void store_pair(float* to, float a, float b) { *reinterpret_cast<float2*>(to) = make_float2(a, b); }
__device__ inline void store_pair(__nv_bfloat16* to, float a, float b) {
  *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(a, b);
}

}  // namespace ix::cuda
