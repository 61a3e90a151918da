// Paged attention of few new tokens a sequence, at the speed of memory. The tokens' positions form one line in chunks
// of 64, cut into equal runs, one for each slot (decode_line.h); a block is (slot, up to kRows query heads of a KV
// head), and every block works the cut out for itself, so no plan has to be made elsewhere. Four warps own 16 positions
// of every chunk each, with a running maximum, sum and output; K and V pass through a ring of shared memory that
// belongs to the warp. The last block to finish a token merges its parts. q and the softmax weights are rounded to bf16
// as K and V are, sums are f32.
//   S = Q K^T  lane (g, t) holds 8 d of position g: the B side of two products, k permuted for q alike
//   O = P V    lane (g, t) holds d = 8g... of positions 2t, 2t+1, 2t+8, 2t+9; a byte permute pairs positions, product j
//   computes d = 8g + j
// Row g of the A side and of the sums is head g, row g + 8 head g + 8.
#include "cuda/attention/decode_line.h"
#include "cuda/attention/decode_ring.h"
#include "cuda/kv/cache.h"
#include "cuda/ptx/async.cuh"
#include "cuda/ptx/launch.h"
#include "cuda/ptx/mma.cuh"

namespace {
using namespace ix::cuda;

constexpr float kLog2e = 1.4426950408889634f;

// of at most 0; what is too small for a normal number becomes 0
__device__ inline float exp2_fast(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

struct Problem {
  Floats q;
  Rows<void> y;
  Ints table;
  Sequences sequences;
  const float* sinks;
  float* parts;
  uint32_t* counters;
  int block_shift, group, pieces;  // pieces: of a KV head's query heads, each up to kRows
  bool bf16_result;
  float scale, softcap;  // scale in units of log2 if there is no softcap
};

// What a block does of a token. It lies in shared memory, where the products find it again when they are done.
struct Share {
  int row, last;          // of q and y; its position
  int begin, stop, step;  // chunks, counted from the token's first that is seen; of a part
  int home, slots;        // the slot in which it begins, how many have a part of it
  int parts;              // in all blocks
  bool last_of_run;
};

// Counts this block's arrival behind all that its threads have written; true for the last, which then sees all of it.
__device__ inline bool arrive_last(uint32_t* counter, uint32_t blocks) {
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32_t before;
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
    is_last = before == blocks - 1;
    if (is_last) *counter = 0;
  }
  __syncthreads();
  return is_last;
}

template <int kWidth, int kRows>
__global__ void __launch_bounds__(kWarps * 32, Ring<kWidth>::kBlocksPerSm)
    decode_kernel(Problem p, KvCache<__nv_bfloat16> cache) {
  using R = Ring<kWidth>;
  constexpr int kStages = R::kStages, kPieces = R::kPieces, kQuads = (kPieces + 3) / 4, kEights = (kPieces + 7) / 8,
                kSets = kRows / 8, kPart = kWidth + 4;  // floats of a head's part: the output, its maximum and sum
  constexpr bool kKeepQ = kWidth <= 128;
  static_assert(kKeepQ || kSets == 1);
  extern __shared__ __align__(128) char shared[];
  __shared__ float tops[kWarps][kRows], totals[kWarps][kRows];
  __shared__ int sums[kMaxSequences / 32];
  __shared__ Share shares[kWarps][R::kTokens];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint32_t ring = shared_address(shared) + warp * kStages * R::kStage;
  float* sheet = reinterpret_cast<float*>(shared + kWarps * kStages * R::kStage);  // [kWarps][4 heads][kWidth]
  const int units = cache.heads * p.pieces, unit = blockIdx.x % units,
            slot = blockIdx.x / units;  // heads of a block are neighbours in time
  const int kv_head = unit / p.pieces, first_head = kv_head * p.group + unit % p.pieces * kRows,
            heads = min(kRows, p.group - unit % p.pieces * kRows);
  const uint64_t policy = policy_evict_first();
  const Sequences& sequences = p.sequences;
  allow_next_kernel();

  // The inputs are older than the kernel before this one, and so are all positions but those of this step.
  Line line(sequences, slot, sums);
  const int begin = line.begin, end = line.end, run = line.run;
  // nothing to do; but a grid that ends early must not let the next one overtake those before
  if (begin >= end) return wait_for_earlier_kernels();

  // The copies run kStages chunks ahead of the products.
  int next_position = 0, next_end = 0, next_first = 0, next_last = 0, next_block = 0, entered = 0;
  bool more = true;
  const int32_t* next_row = nullptr;
  auto look_up = [&] { next_block = __ldcg(next_row + (min(next_position, next_last) >> p.block_shift)); };
  auto enter = [&] {
    const Token& token = line.token;
    const int step = sequences.item_chunks(token.last), skipped = (max(token.start, begin) - token.start) * step,
              stop = min(sequences.chunks(token.last), (min(token.end(), end) - token.start) * step),
              home = token.start / run, slots = (token.end() - 1) / run - home + 1;
    if (lane == 0)
      shares[warp][entered % R::kTokens] = {token.row,
                                            token.last,
                                            skipped,
                                            stop,
                                            sequences.deterministic ? step : stop,
                                            home,
                                            slots,
                                            sequences.deterministic ? token.items : slots,
                                            token.end() >= end};
    entered++;
    next_last = token.last;
    next_first = sequences.window > 0 ? max(0, token.last - sequences.window + 1) : 0;
    next_row = p.table[line.table_row];
    next_position = (next_first / kChunk + skipped) * kChunk + warp * 16;
    next_end = (next_first / kChunk + stop) * kChunk;
    look_up();
  };
  const typename R::Writes writes(lane);
  auto issue = [&](int stage) {
    if (more) {
      const bool seen = next_position + 16 > next_first && next_block >= 0 && next_block < cache.blocks;
      const int left = seen ? next_last + 1 - next_position : 0;  // positions to read, of 16
      const __nv_bfloat16* k =
          cache.k(left > 0 ? next_block : 0, kv_head) + (next_position & (cache.tokens - 1)) * kWidth + lane * 8;
      const __nv_bfloat16* v = k + cache.half();
      const uint32_t to = ring + stage * R::kStage;
#pragma unroll
      for (int r = 0; r < kPieces / 2; r++) {
        const uint32_t bytes = writes.at(r, lane) < left ? 16 : 0;
        copy_async(to + writes.k(r, lane), k + r * 256, bytes, policy);
        copy_async(to + writes.v(r, lane), v + r * 256, bytes, policy);
      }
      next_position += kChunk;
      if (next_position < next_end) {
        look_up();  // one chunk ahead of its use
      } else {
        more = !line.at_end();
        if (more) {
          if constexpr (kWidth > 128)
            line.call_next();
          else
            line.next();
          enter();
        }
      }
    }
    copy_async_commit();
  };
  enter();
  bool waited = false;
  for (int i = 0; i < kStages; i++) {
    if (!waited && !(more && next_position - warp * 16 + kChunk <= line.fresh)) {
      wait_for_earlier_kernels();
      waited = true;
    }
    issue(i);
  }
  if (!waited) wait_for_earlier_kernels();

  const typename R::Reads reads(g, t);
  int stage = 0;
  for (int used = 0;; used++) {
    __syncwarp();
    const Share& share = shares[warp][used % R::kTokens];
    const int last = share.last, first = sequences.window > 0 ? max(0, last - sequences.window + 1) : 0;
    auto part_of = [&](int index, int head) {
      const int64_t i = sequences.deterministic ? (share.home * 2 + (share.slots > 1)) * kMaxParts + index
                                                : (share.home + index) * 2 + (index == 0);
      return p.parts + ((i * units + unit) * min(p.group, kRows) + head) * kPart;
    };
    auto finish = [&](int head, float highest, float all, float4 value, int d) {
      if (p.sinks) {
        const float sink = p.sinks[first_head + head] * kLog2e, higher = fmaxf(highest, sink);
        const float keep = exp2f(highest - higher);
        all = all * keep + exp2f(sink - higher);
        value.x *= keep, value.y *= keep, value.z *= keep, value.w *= keep;
      }
      const float r = 1.0f / all;
      const int64_t at = share.row * p.y.stride + (first_head + head) * kWidth + d;
      value = make_float4(value.x * r, value.y * r, value.z * r, value.w * r);
      if (p.bf16_result)
        *reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(p.y.data) + at) =
            make_uint2(pack_bf16(value.x, value.y), pack_bf16(value.z, value.w));
      else
        *reinterpret_cast<float4*>(static_cast<float*>(p.y.data) + at) = value;
    };

    for (int chunk = share.begin, stop = share.stop; chunk < stop;) {  // a part
      const int part_stop = min(stop, chunk + share.step);
      // q stays in registers, or in the warp's part of the sheet where the sums take them
      uint4 q[kSets][kKeepQ ? kQuads : 1];
      const uint32_t q_sheet = shared_address(sheet + warp * 4 * kWidth) + lane * 16;
#pragma unroll
      for (int set = 0; set < kSets; set++)
#pragma unroll
        for (int c = 0; c < kQuads; c++) {
          uint4 values = make_uint4(0, 0, 0, 0);
          if (set * 8 + g < heads && c * 4 + t < kPieces) {
            const float* x = p.q[share.row] + (first_head + set * 8 + g) * kWidth + (c * 4 + t) * 8;
            const float4 a = load_past_l1(x), b = load_past_l1(x + 4);
            values = make_uint4(pack_bf16(a.x, a.y), pack_bf16(a.z, a.w), pack_bf16(b.x, b.y), pack_bf16(b.z, b.w));
          }
          if constexpr (kKeepQ)
            q[set][c] = values;
          else
            store_shared(q_sheet + c * 512, values);
        }
      float out[kEights * 8][4] = {}, top[kSets], sum[kSets] = {};
#pragma unroll
      for (int set = 0; set < kSets; set++) top[set] = -INFINITY;
      for (; chunk < part_stop; chunk++) {
        copy_async_wait<kStages - 1>();
        __syncwarp();
        const uint32_t keys = ring + stage * R::kStage;
        float s[2][4] = {};
#pragma unroll
        for (int c = 0; c < kQuads; c++) {
          uint4 low;
          if constexpr (kKeepQ)
            low = q[0][c];
          else
            low = load_shared(q_sheet + c * 512);
#pragma unroll
          for (int r = 0; r < 2; r++) {
            const uint4 k = c * 4 + t < kPieces ? load_shared(keys + reads.k(c, r)) : make_uint4(0, 0, 0, 0);
            const uint4 high = kSets > 1 ? q[kSets - 1][c] : make_uint4(0, 0, 0, 0);
            mma(s[r], low.x, high.x, low.y, high.y, k.x, k.y);
            mma(s[r], low.z, high.z, low.w, high.w, k.z, k.w);
          }
        }
        const int position = (first / kChunk + chunk) * kChunk + warp * 16;
        uint32_t weights[kSets][2];
#pragma unroll
        for (int set = 0; set < kSets; set++) {
          float weight[4];
#pragma unroll
          for (int e = 0; e < 4; e++) weight[e] = s[e / 2][set * 2 + e % 2] * p.scale;
          if (p.softcap > 0)
#pragma unroll
            for (int e = 0; e < 4; e++) weight[e] = p.softcap * tanhf(weight[e] / p.softcap) * kLog2e;
          if (position + 15 > last || position < first) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
              const int at = position + 2 * t + e / 2 * 8 + e % 2;
              if (at > last || at < first) weight[e] = -INFINITY;
            }
          }
          float highest = fmaxf(fmaxf(weight[0], weight[1]), fmaxf(weight[2], weight[3]));
          highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1));
          highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
          if (__any_sync(~0u, highest > top[set])) {
            const float higher = fmaxf(top[set], highest),
                        keep = top[set] == -INFINITY ? 0.0f : exp2_fast(top[set] - higher);
            top[set] = higher;
            sum[set] *= keep;
#pragma unroll
            for (int j = 0; j < kEights * 8; j++) out[j][set * 2] *= keep, out[j][set * 2 + 1] *= keep;
          }
          const float base = top[set] == -INFINITY ? 0.0f : top[set];  // so far all positions of this warp are masked
#pragma unroll
          for (int e = 0; e < 4; e++) {
            weight[e] = exp2_fast(weight[e] - base);
            sum[set] += weight[e];
          }
          weights[set][0] = pack_bf16(weight[0], weight[1]), weights[set][1] = pack_bf16(weight[2], weight[3]);
        }
        const uint32_t a0 = weights[0][0], a2 = weights[0][1], a1 = kSets > 1 ? weights[kSets - 1][0] : 0,
                       a3 = kSets > 1 ? weights[kSets - 1][1] : 0;
#pragma unroll
        for (int h = 0; h < kEights; h++) {
          uint4 v[4];
#pragma unroll
          for (int r = 0; r < 4; r++)
            v[r] = h * 8 + g < kPieces ? load_shared(keys + reads.v(h, r)) : make_uint4(0, 0, 0, 0);
          const uint32_t a[4] = {v[0].x, v[0].y, v[0].z, v[0].w}, b[4] = {v[1].x, v[1].y, v[1].z, v[1].w};
          const uint32_t c[4] = {v[2].x, v[2].y, v[2].z, v[2].w}, d[4] = {v[3].x, v[3].y, v[3].z, v[3].w};
#pragma unroll
          for (int w = 0; w < 4; w++) {
            mma(out[h * 8 + 2 * w], a0, a1, a2, a3, __byte_perm(a[w], b[w], 0x5410), __byte_perm(c[w], d[w], 0x5410));
            mma(out[h * 8 + 2 * w + 1], a0, a1, a2, a3, __byte_perm(a[w], b[w], 0x7632),
                __byte_perm(c[w], d[w], 0x7632));
          }
        }
        __syncwarp();  // every lane has read the stage
        issue(stage);
        if (++stage == kStages) stage = 0;
      }

      // Four warps to one, four heads at a time: head g, d = 64h + 16t + 8e + j in out[h * 8 + j][e]
      const bool only = share.parts == 1;
      const int part = sequences.deterministic ? (chunk - 1) / share.step : slot - share.home;
#pragma unroll
      for (int set = 0; set < kSets; set++) {
        sum[set] += __shfl_xor_sync(~0u, sum[set], 1);
        sum[set] += __shfl_xor_sync(~0u, sum[set], 2);
        if (t == 0) tops[warp][set * 8 + g] = top[set], totals[warp][set * 8 + g] = sum[set];
      }
#pragma unroll
      for (int head0 = 0; head0 < kRows; head0 += 4) {
        if (head0 >= heads) break;
        __syncthreads();
        if (g >= head0 % 8 && g < head0 % 8 + 4) {
          float* to = sheet + (warp * 4 + g - head0 % 8) * kWidth;
#pragma unroll
          for (int h = 0; h < kEights; h++)
#pragma unroll
            for (int e = 0; e < 2; e++)
              if (h * 8 + 2 * t + e < kPieces)
#pragma unroll
                for (int j = 0; j < 8; j += 4) {
                  const int x = head0 / 8 * 2 + e;
                  *reinterpret_cast<float4*>(to + h * 64 + t * 16 + e * 8 + j) = make_float4(
                      out[h * 8 + j][x], out[h * 8 + j + 1][x], out[h * 8 + j + 2][x], out[h * 8 + j + 3][x]);
                }
        }
        __syncthreads();
        const int head = head0 + warp;
        if (head >= heads) continue;
        float highest = -INFINITY, all = 0, keep[kWarps];
#pragma unroll
        for (int w = 0; w < kWarps; w++) highest = fmaxf(highest, tops[w][head]);
#pragma unroll
        for (int w = 0; w < kWarps; w++) {
          keep[w] = tops[w][head] == -INFINITY ? 0.0f : exp2f(tops[w][head] - highest);
          all += keep[w] * totals[w][head];
        }
        for (int d = lane * 4; d < kWidth; d += 128) {
          float4 value = make_float4(0, 0, 0, 0);
#pragma unroll
          for (int w = 0; w < kWarps; w++) {
            const float4 x = *reinterpret_cast<float4*>(sheet + (w * 4 + warp) * kWidth + d);
            value.x += keep[w] * x.x, value.y += keep[w] * x.y, value.z += keep[w] * x.z, value.w += keep[w] * x.w;
          }
          if (only)
            finish(head, highest, all, value, d);
          else
            *reinterpret_cast<float4*>(part_of(part, head) + d) = value;
        }
        if (!only && lane == 0) *reinterpret_cast<float2*>(part_of(part, head) + kWidth) = make_float2(highest, all);
      }
      __syncthreads();  // the tops may be written again
    }
    // at most one token begins in a slot and ends in another
    if (share.parts > 1 && (share.slots == 1 || arrive_last(p.counters + share.home * units + unit, share.slots))) {
      constexpr int kFours = (kWidth + 127) / 128, kAtOnce = 16 / kFours;
      const int count = share.parts;
      for (int head = warp; head < heads; head += kWarps) {
        float highest = -INFINITY, all = 0, its_share = 0;
        float4 value[kFours] = {};
        for (int i0 = 0; i0 < count; i0 += kAtOnce) {
          float4 x[kAtOnce][kFours];
#pragma unroll
          for (int i = 0; i < kAtOnce; i++)
#pragma unroll
            for (int f = 0; f < kFours; f++) {
              const int d = f * 128 + lane * 4;
              x[i][f] = i0 + i < count && d < kWidth
                            ? __ldcg(reinterpret_cast<const float4*>(part_of(i0 + i, head) + d))
                            : make_float4(0, 0, 0, 0);
            }
          if (i0 % 32 == 0) {  // shares of the next 32 parts, a lane a part
            const float2 top_sum = i0 + lane < count
                                       ? __ldcg(reinterpret_cast<const float2*>(part_of(i0 + lane, head) + kWidth))
                                       : make_float2(-INFINITY, 0);
            const float higher = fmaxf(highest, warp_max(top_sum.x)),
                        keep = highest == -INFINITY ? 0.0f : exp2f(highest - higher);
            its_share = top_sum.x == -INFINITY ? 0.0f : exp2f(top_sum.x - higher);
            all = all * keep + warp_sum(its_share * top_sum.y);
            highest = higher;
#pragma unroll
            for (int f = 0; f < kFours; f++)
              value[f].x *= keep, value[f].y *= keep, value[f].z *= keep, value[f].w *= keep;
          }
#pragma unroll
          for (int i = 0; i < kAtOnce; i++) {
            const float its = __shfl_sync(~0u, its_share, (i0 + i) % 32);
#pragma unroll
            for (int f = 0; f < kFours; f++)
              value[f].x += its * x[i][f].x, value[f].y += its * x[i][f].y, value[f].z += its * x[i][f].z,
                  value[f].w += its * x[i][f].w;
          }
        }
#pragma unroll
        for (int f = 0; f < kFours; f++)
          if (f * 128 + lane * 4 < kWidth) finish(head, highest, all, value[f], f * 128 + lane * 4);
      }
    }
    if (share.last_of_run) return;
  }
}

int slots_of(const Gpu& gpu, int width, int units) {
  const int slots = gpu.sms * (width > 128 ? 1 : 2) / units;
  return slots > 1 ? slots : 1;
}
int rows_of(int width, int group) { return group > 8 && width < 256 ? 16 : 8; }

template <int kWidth, int kRows>
bool run(ix_stream* stream, const Gpu& gpu, Problem p, const KvCache<__nv_bfloat16>& cache) {
  p.pieces = divide_up(p.group, kRows);
  const int units = cache.heads * p.pieces;
  p.sequences.slots = slots_of(gpu, kWidth, units);
  if (p.sequences.slots * units > kStreamCounters) return false;
  launch_kernel<decode_kernel<kWidth, kRows>>(stream, gpu, p.sequences.slots * units, kWarps * 32, Ring<kWidth>::kBytes,
                                              1, p, cache);
  return true;
}
template <int kWidth>
bool run(ix_stream* stream, const Gpu& gpu, const Problem& p, const KvCache<__nv_bfloat16>& cache) {
  if constexpr (kWidth < 256)
    if (rows_of(kWidth, p.group) > 8) return run<kWidth, 16>(stream, gpu, p, cache);
  return run<kWidth, 8>(stream, gpu, p, cache);
}
}  // namespace

namespace ix::cuda {

bool decode_attention(ix_stream* stream, const ix_kernel_call* call, bool bf16_result, bool deterministic) {
  const ix_tensor* t = call->operands;
  const KvCache<__nv_bfloat16> cache(t[1]);
  const int heads = int(call->attrs[0].i), tokens = t[0].dims[0], sequences = t[3].dims[0];
  const float softcap = float(call->attrs[3].f);
  const int block_shift = __builtin_ctz(unsigned(cache.tokens));
  const Rows<void> y(t[7]);
  const Problem p{Floats(t[0]),
                  y,
                  Ints(t[5]),
                  {static_cast<const int32_t*>(t[2].data), static_cast<const int32_t*>(t[3].data),
                   static_cast<const int32_t*>(t[4].data), sequences, int(call->attrs[2].i), 0, deterministic},
                  static_cast<const float*>(t[6].data),
                  static_cast<float*>(call->workspace),
                  stream->counters,
                  block_shift,
                  heads / cache.heads,
                  0,
                  bf16_result,
                  softcap > 0 ? float(call->attrs[1].f) : float(call->attrs[1].f) * kLog2e,
                  softcap};
  const auto odd = [](const ix_tensor& x) {
    return reinterpret_cast<uintptr_t>(x.data) % 16 != 0 || x.stride % 4 != 0;
  };
  const Gpu gpu = current_gpu();
  // Below sm_90 the rings are too large (or not yet tuned).
  if (gpu.capability < 90 || gpu.capability >= 120 || sequences > kMaxSequences || cache.tokens < 16 ||
      cache.tokens != 1 << block_shift || odd(t[0]) || odd(t[7]))
    return false;
  if (tokens <= 0 || sequences <= 0) return true;
  switch (cache.width) {
    case 64:
      return run<64>(stream, gpu, p, cache);
    case 80:
      return run<80>(stream, gpu, p, cache);
    case 96:
      return run<96>(stream, gpu, p, cache);
    case 128:
      return run<128>(stream, gpu, p, cache);
    case 256:
      return run<256>(stream, gpu, p, cache);
    default:
      return false;
  }
}

// Parts of each block: its run may end one token and begin another, or, deterministic, hold all parts of a token.
size_t decode_attention_workspace(const ix_kernel_call* call, bool deterministic) {
  const int32_t* cache = call->operands[1].dims;
  const int kv_heads = cache[2], width = cache[3], group = int(call->attrs[0].i) / kv_heads,
            rows = rows_of(width, group), units = kv_heads * divide_up(group, rows);
  return size_t(2) * (deterministic ? kMaxParts : 1) * slots_of(current_gpu(), width, units) * units *
         (group < rows ? group : rows) * (width + 4) * sizeof(float);
}

}  // namespace ix::cuda
