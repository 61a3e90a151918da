// The work of decode attention as one line, found on the device by each warp for itself: the tokens of all sequences
// that decode serves, one after the other, each cut into items. The line falls into equal runs, one for each slot of
// the grid. An item is a chunk of kChunk positions, or, if a token's bits may depend on its sequence alone, one of the
// token's parts, which are then never cut.
#pragma once
#include "cuda/attention/decode.h"

namespace ix::cuda {

constexpr int kChunk = 64, kMaxSequences = 4096;
constexpr int kMinRun = 2;                      // chunks: fewer parts to merge
constexpr int kPartChunks = 8, kMaxParts = 32;  // deterministic: chunks of a part at least, parts of a token at most

// The sequences of the step. All of this is older than the kernel before the one that reads it.
struct Sequences {
  const int32_t *start, *context, *row;
  int count, window, slots;
  bool deterministic;

  __device__ int first_chunk(int last) const { return window > 0 ? max(0, last - window + 1) / kChunk : 0; }
  __device__ int chunks(int last) const { return last / kChunk - first_chunk(last) + 1; }
  __device__ int item_chunks(int last) const {
    return deterministic ? max(kPartChunks, (chunks(last) + kMaxParts - 1) / kMaxParts) : 1;
  }
  __device__ int items(int last) const {
    if (last < 0) return 0;
    return deterministic ? (chunks(last) + item_chunks(last) - 1) / item_chunks(last) : chunks(last);
  }
};

struct Token {
  int row, last;     // of q and y; its position
  int start, items;  // on the line
  __device__ int end() const { return start + items; }
};

// A warp on the line. 32 sequences lie in its lanes.
class Line {
 public:
  int begin, end, run;  // of this slot; nothing to do if begin >= end
  Token token{};
  int fresh, table_row;  // of the token's sequence: the first position that this step writes, its row of block tables

  // For a whole block; sums: [kMaxSequences / 32] in shared memory.
  __device__ Line(const Sequences& sequences, int slot, int* sums) : s_(sequences) {
    const int lane = threadIdx.x % 32, windows = (s_.count + 31) / 32;
    int before = 0;
    window_ = 0, mine_ = load(lane);
    if (windows <= 1) {
      cut(__reduce_add_sync(~0u, mine_.items), slot);
    } else {
#pragma unroll 4
      for (int w = threadIdx.x / 32; w < windows; w += blockDim.x / 32) {
        const int sum = __reduce_add_sync(~0u, load(w * 32 + lane).items);
        if (lane == 0) sums[w] = sum;
      }
      __syncthreads();
      constexpr int kSums = kMaxSequences / 32 / 32;
      int sum = 0;
      for (int i = lane * kSums; i < min(lane * kSums + kSums, windows); i++) sum += sums[i];
      const int behind = scan(sum);
      cut(__shfl_sync(~0u, behind, 31), slot);
      if (begin >= end) return;
      const int owner = __ffs(__ballot_sync(~0u, behind > begin)) - 1;
      window_ = owner * kSums;
      for (before = __shfl_sync(~0u, behind - sum, owner); before + sums[window_] <= begin; window_++)
        before += sums[window_];
      mine_ = load(window_ * 32 + lane);
    }
    if (begin >= end) return;
    const int behind = before + scan(mine_.items);
    lane_ = __ffs(__ballot_sync(~0u, behind > begin)) - 1;
    token.start = __shfl_sync(~0u, behind - mine_.items, lane_);
    index_ = 0;
    enter();
    while (token.end() <= begin) next();
  }
  // To the next token; there is one.
  __device__ void next() {
    token.start += token.items;
    do {
      if (++index_ == __shfl_sync(~0u, mine_.news, lane_)) {
        uint32_t behind = __ballot_sync(~0u, mine_.items > 0) & ~1u << lane_;
        while (behind == 0) {
          mine_ = load(++window_ * 32 + threadIdx.x % 32);
          behind = __ballot_sync(~0u, mine_.items > 0);
        }
        lane_ = __ffs(behind) - 1, index_ = 0;
      }
      enter();
    } while (token.items == 0);
  }
  // The same as a call, for kernels whose loop has no registers left.
  __device__ __noinline__ void call_next() { next(); }
  __device__ bool at_end() const { return token.end() >= end; }

 private:
  struct Sequence {
    int start, news, context, row, items;
  };
  const Sequences s_;          // a copy: kernel parameters stay where they are cheap to read
  Sequence mine_;              // of the lane
  int window_, lane_, index_;  // the token's sequence, its number in there

  __device__ Sequence load(int s) const {
    Sequence q{};
    if (s >= s_.count) return q;
    q.start = __ldcg(s_.start + s), q.news = __ldcg(s_.start + s + 1) - q.start, q.context = __ldcg(s_.context + s),
    q.row = __ldcg(s_.row + s);
    if (q.news < 0 || q.news > kDecodeTokens) q.news = 0;
    for (int i = 0; i < q.news; i++) q.items += s_.items(q.context - q.news + i);
    return q;
  }
  __device__ void enter() {
    fresh = __shfl_sync(~0u, mine_.context - mine_.news, lane_), table_row = __shfl_sync(~0u, mine_.row, lane_);
    token.row = __shfl_sync(~0u, mine_.start, lane_) + index_;
    token.last = fresh + index_;
    token.items = s_.items(token.last);
  }
  __device__ void cut(int total, int slot) {
    run = max(s_.deterministic ? 1 : kMinRun, (total + s_.slots - 1) / s_.slots);
    begin = slot * run, end = min(total, begin + run);
  }
  __device__ static int scan(int x) {  // sum over this lane and those before it
    for (int o = 1; o < 32; o *= 2) {
      const int other = __shfl_up_sync(~0u, x, o);
      if (int(threadIdx.x % 32) >= o) x += other;
    }
    return x;
  }
};

}  // namespace ix::cuda
