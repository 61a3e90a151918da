// Paged attention of few new tokens a sequence, at the speed of memory. The chunks of 64 positions of all tokens form
// one line, cut into equal runs, one for each slot; a block is (slot, up to 8 query heads of a KV head), and every
// block works the cut out for itself, so no plan has to be made elsewhere. Four warps own 16 positions of every chunk
// each, with a running maximum, sum and output; K and V pass through a ring of shared memory that belongs to the warp.
// The last block to finish a token merges its parts. q and the softmax weights are rounded to bf16 as K and V are, sums
// are f32.
//   S = Q K^T  lane (g, t) holds 8 d of position g: the B side of two products, k permuted for q alike
//   O = P V    lane (g, t) holds d = 8g... of positions 2t, 2t+1, 2t+8, 2t+9; a byte permute pairs positions, product j
//   computes d = 8g + j
#include "cuda/attention/decode.h"
#include "cuda/kv/cache.h"
#include "cuda/ptx/async.cuh"
#include "cuda/ptx/launch.h"
#include "cuda/ptx/mma.cuh"

namespace {
using namespace ix::cuda;

constexpr int kWarps = 4, kChunk = 64, kHeads = 8, kMaxTokens = 384, kMaxBlocks = 512,
              kMinChunks = 2;  // a run of at least 2: fewer parts to merge
constexpr float kLog2e = 1.4426950408889634f;

struct Problem {
  Floats q, y;
  Ints table;
  const int32_t *seq_start, *seq_context, *seq_row;
  const float* sinks;
  float* parts;
  uint32_t* counters;
  int first_token, tokens, sequences, group, pieces, slots,
      window;  // pieces: of a KV head's query heads, each up to kHeads
  float scale, softcap;
};

// What a block knows of a token: where its chunks end on the line, its position and block table row, the first position
// this step writes.
struct Place {
  int end, last, row, fresh;
};

__device__ inline Place find_place(const Problem& p, int token) {
  int s = token;
  if (s >= p.sequences || p.seq_start[s] != token ||
      p.seq_start[s + 1] != token + 1) {  // else each sequence has one token
    int low = 0, high = p.sequences - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (p.seq_start[middle] <= token)
        low = middle;
      else
        high = middle - 1;
    }
    s = low;
  }
  const int end = p.seq_start[s + 1], context = p.seq_context[s];
  return {0, context - (end - token), p.seq_row[s], context - (end - p.seq_start[s])};
}

template <int kWidth>
struct Ring {
  static constexpr int kPieces = kWidth / 8;  // of 16 bytes in a row
  // Rows in shared memory: whole lines are swizzled, others padded, so that 8 lanes' 16 bytes lie in different banks
  static constexpr bool kWhole = kPieces % 8 == 0;
  static constexpr int kPitchK = kWhole ? kPieces : (kPieces + 3) / 8 * 8 + 4, kPitchV = kWhole ? kPieces : kPieces | 1;
  static constexpr int kBytesK = 16 * kPitchK * 16, kStage = kBytesK + 16 * kPitchV * 16;
  static constexpr int kStages = kWidth == 64 ? 6 : kWidth == 80 ? 4 : 3;
  static constexpr int kBlocksPerSm = kWidth > 128 ? 1 : 2;
  static constexpr int kSheet = kWarps * 4 * kWidth;  // floats
  __device__ static uint32_t k(int position, int piece) {
    return (position * kPitchK + (kWhole ? piece ^ (position & 1) << 2 : piece)) * 16;
  }
  __device__ static uint32_t v(int position, int piece) {
    return kBytesK + (position * kPitchV + (kWhole ? piece ^ (position & 6) : piece)) * 16;
  }
  static size_t shared(int tokens) {
    return kWarps * kStages * kStage + kSheet * sizeof(float) + tokens * sizeof(Place);
  }
};

template <int kWidth>
__global__ void __launch_bounds__(kWarps * 32, Ring<kWidth>::kBlocksPerSm)
    decode_kernel(Problem p, KvCache<__nv_bfloat16> cache) {
  using R = Ring<kWidth>;
  constexpr int kStages = R::kStages, kPieces = R::kPieces, kQuads = (kPieces + 3) / 4, kEights = (kPieces + 7) / 8;
  extern __shared__ __align__(128) char shared[];
  __shared__ float tops[kWarps][kHeads], totals[kWarps][kHeads];
  __shared__ int warp_chunks[kWarps];
  __shared__ uint32_t is_last;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint32_t ring = shared_address(shared) + warp * kStages * R::kStage;
  float* sheet = reinterpret_cast<float*>(shared + kWarps * kStages * R::kStage);  // [kWarps][4 heads][kWidth]
  Place* places = reinterpret_cast<Place*>(sheet + R::kSheet);
  const int units = cache.heads * p.pieces, unit = blockIdx.x % units,
            slot = blockIdx.x / units;  // heads of a block are neighbours in time
  const int kv_head = unit / p.pieces, first_head = kv_head * p.group + unit % p.pieces * kHeads,
            heads = min(kHeads, p.group - unit % p.pieces * kHeads);
  const uint64_t policy = policy_evict_first();
  allow_next_kernel();

  // The inputs are older than the kernel before this one, and so are all positions but those of this step.
  auto first_of = [&](int last) { return p.window > 0 ? max(0, last - p.window + 1) : 0; };
  const int per_thread = (p.tokens + kWarps * 32 - 1) / (kWarps * 32), mine = threadIdx.x * per_thread;
  int chunks = 0;
  for (int i = mine; i < min(mine + per_thread, p.tokens); i++) {
    Place place = find_place(p, p.first_token + i);
    if (place.last >= 0) chunks += place.last / kChunk - first_of(place.last) / kChunk + 1;
    place.end = chunks;
    places[i] = place;
  }
  int before = chunks;
  for (int o = 1; o < 32; o *= 2) {
    const int other = __shfl_up_sync(~0u, before, o);
    if (lane >= o) before += other;
  }
  if (lane == 31) warp_chunks[warp] = before;
  before -= chunks;
  __syncthreads();
  int total = 0;
  for (int w = 0; w < kWarps; w++) {
    if (w < warp) before += warp_chunks[w];
    total += warp_chunks[w];
  }
  for (int i = mine; i < min(mine + per_thread, p.tokens); i++) places[i].end += before;
  __syncthreads();
  const int run = max(kMinChunks, (total + p.slots - 1) / p.slots), begin = slot * run, end = min(total, begin + run);
  // nothing to do; but a grid that ends early must not let the next one overtake those before
  if (begin >= end) return wait_for_earlier_kernels();
  int token = 0;  // the first that ends behind `begin`
  for (int high = p.tokens - 1; token < high;) {
    const int middle = (token + high) / 2;
    if (places[middle].end > begin)
      high = middle;
    else
      token = middle + 1;
  }

  // The copies run kStages chunks ahead of the products.
  int next = begin, next_token = token, next_end = 0, next_position = 0, next_last = 0, next_first = 0, next_fresh = 0,
      next_block = 0;
  const int32_t* next_row = nullptr;
  auto look_up = [&] {
    next_block =
        next_position <= next_last && next_position + 16 > next_first ? next_row[next_position / cache.tokens] : -1;
  };
  auto enter = [&] {
    const Place place = places[next_token];
    const int start = next_token > 0 ? places[next_token - 1].end : 0;
    next_end = place.end, next_last = place.last, next_fresh = place.fresh, next_first = first_of(place.last),
    next_row = p.table[place.row];
    next_position = (next_first / kChunk + next - start) * kChunk + warp * 16;
    look_up();
  };
  auto issue = [&](int stage) {
    if (next < end) {
      const int left =
          next_block >= 0 && next_block < cache.blocks ? next_last + 1 - next_position : 0;  // positions to read, of 16
      const __nv_bfloat16* k = cache.k(left > 0 ? next_block : 0, kv_head) + next_position % cache.tokens * kWidth;
      const __nv_bfloat16* v = k + cache.half();
      const uint32_t to = ring + stage * R::kStage;
#pragma unroll
      for (int r = 0; r < kPieces / 2; r++) {
        const int i = r * 32 + lane, position = i / kPieces, piece = i % kPieces;
        copy_async(to + R::k(position, piece), k + i * 8, position < left ? 16 : 0, policy);
        copy_async(to + R::v(position, piece), v + i * 8, position < left ? 16 : 0, policy);
      }
      if (++next < end) {
        if (next < next_end) {
          next_position += kChunk;
          look_up();  // one chunk ahead of its use
        } else {
          do next_token++;
          while (places[next_token].end <= next);
          enter();
        }
      }
    }
    copy_async_commit();
  };
  enter();
  int ahead = 0;
  while (ahead < kStages && next < end && next_position - warp * 16 + kChunk <= next_fresh) issue(ahead++);
  wait_for_earlier_kernels();
  while (ahead < kStages) issue(ahead++);

  int stage = 0;
  for (int chunk = begin; chunk < end;) {  // one token's part of the run
    const Place place = places[token];
    const int start = token > 0 ? places[token - 1].end : 0, stop = min(place.end, end), first = first_of(place.last),
              last = place.last;
    const bool whole = start >= begin && place.end <= end;
    const int64_t row = p.first_token + token;
    uint4 q[kQuads];
#pragma unroll
    for (int c = 0; c < kQuads; c++) {
      q[c] = make_uint4(0, 0, 0, 0);
      if (g < heads && c * 4 + t < kPieces) {
        const float* from = p.q[row] + (first_head + g) * kWidth + (c * 4 + t) * 8;
        const float4 a = load_past_l1(from), b = load_past_l1(from + 4);
        q[c] = make_uint4(pack_bf16(a.x, a.y), pack_bf16(a.z, a.w), pack_bf16(b.x, b.y), pack_bf16(b.z, b.w));
      }
    }
    float out[kEights * 8][4] = {}, top = -INFINITY, sum = 0;
    for (; chunk < stop; chunk++) {
      copy_async_wait<kStages - 1>();
      __syncwarp();
      const uint32_t from = ring + stage * R::kStage;
      float s[2][4] = {};
#pragma unroll
      for (int c = 0; c < kQuads; c++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
          const uint4 k = c * 4 + t < kPieces ? load_shared(from + R::k(r * 8 + g, c * 4 + t)) : make_uint4(0, 0, 0, 0);
          mma(s[r], q[c].x, 0, q[c].y, 0, k.x, k.y);
          mma(s[r], q[c].z, 0, q[c].w, 0, k.z, k.w);
        }
      const int position = (first / kChunk + chunk - start) * kChunk + warp * 16;
      float weight[4];
#pragma unroll
      for (int e = 0; e < 4; e++) {
        weight[e] = s[e / 2][e % 2] * p.scale;
        if (p.softcap > 0) weight[e] = p.softcap * tanhf(weight[e] / p.softcap);
        weight[e] *= kLog2e;
        const int at = position + e / 2 * 8 + 2 * t + e % 2;
        if (at > last || at < first) weight[e] = -INFINITY;
      }
      float highest = fmaxf(fmaxf(weight[0], weight[1]), fmaxf(weight[2], weight[3]));
      highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 1));
      highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, 2));
      if (__any_sync(~0u, highest > top)) {
        const float higher = fmaxf(top, highest), keep = top == -INFINITY ? 0.0f : exp2f(top - higher);
        top = higher;
        sum *= keep;
#pragma unroll
        for (int j = 0; j < kEights * 8; j++) out[j][0] *= keep, out[j][1] *= keep;
      }
      const float base = top == -INFINITY ? 0.0f : top;  // so far all positions of this warp are masked
#pragma unroll
      for (int e = 0; e < 4; e++) {
        weight[e] = exp2f(weight[e] - base);
        sum += weight[e];
      }
      const uint32_t a0 = pack_bf16(weight[0], weight[1]), a2 = pack_bf16(weight[2], weight[3]);
#pragma unroll
      for (int h = 0; h < kEights; h++) {
        uint4 v[4];
#pragma unroll
        for (int r = 0; r < 4; r++)
          v[r] = h * 8 + g < kPieces ? load_shared(from + R::v(2 * t + r % 2 + r / 2 * 8, h * 8 + g))
                                     : make_uint4(0, 0, 0, 0);
        const uint32_t a[4] = {v[0].x, v[0].y, v[0].z, v[0].w}, b[4] = {v[1].x, v[1].y, v[1].z, v[1].w};
        const uint32_t c[4] = {v[2].x, v[2].y, v[2].z, v[2].w}, d[4] = {v[3].x, v[3].y, v[3].z, v[3].w};
#pragma unroll
        for (int w = 0; w < 4; w++) {
          mma(out[h * 8 + 2 * w], a0, 0, a2, 0, __byte_perm(a[w], b[w], 0x5410), __byte_perm(c[w], d[w], 0x5410));
          mma(out[h * 8 + 2 * w + 1], a0, 0, a2, 0, __byte_perm(a[w], b[w], 0x7632), __byte_perm(c[w], d[w], 0x7632));
        }
      }
      __syncwarp();  // every lane has read the stage
      issue(stage);
      if (++stage == kStages) stage = 0;
    }

    // Four warps to one, four heads at a time: head g, d = 64h + 16t + 8e + j in out[h * 8 + j][e]
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    if (t == 0) tops[warp][g] = top, totals[warp][g] = sum;
    constexpr int kPart = kWidth + 4;  // floats of a head's part: the output, its maximum and sum
    auto part_of = [&](int s, bool begins, int head) {
      return p.parts + (int64_t(s * 2 + begins) * units + unit) * kHeads * kPart + head * kPart;
    };
    auto finish = [&](int head, float highest, float all, float4 value, int d) {
      if (p.sinks) {
        const float sink = p.sinks[first_head + head] * kLog2e, higher = fmaxf(highest, sink);
        const float keep = exp2f(highest - higher);
        all = all * keep + exp2f(sink - higher);
        value.x *= keep, value.y *= keep, value.z *= keep, value.w *= keep;
      }
      const float r = 1.0f / all;
      *reinterpret_cast<float4*>(p.y[row] + (first_head + head) * kWidth + d) =
          make_float4(value.x * r, value.y * r, value.z * r, value.w * r);
    };
    for (int head0 = 0; head0 < heads; head0 += 4) {
      __syncthreads();
      if (g >= head0 && g < head0 + 4) {
        float* to = sheet + (warp * 4 + g - head0) * kWidth;
#pragma unroll
        for (int h = 0; h < kEights; h++)
#pragma unroll
          for (int e = 0; e < 2; e++)
            if (h * 8 + 2 * t + e < kPieces)
#pragma unroll
              for (int j = 0; j < 8; j += 4)
                *reinterpret_cast<float4*>(to + h * 64 + t * 16 + e * 8 + j) =
                    make_float4(out[h * 8 + j][e], out[h * 8 + j + 1][e], out[h * 8 + j + 2][e], out[h * 8 + j + 3][e]);
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
        if (whole)
          finish(head, highest, all, value, d);
        else
          *reinterpret_cast<float4*>(part_of(slot, start >= begin, head) + d) = value;
      }
      if (!whole && lane == 0)
        *reinterpret_cast<float2*>(part_of(slot, start >= begin, head) + kWidth) = make_float2(highest, all);
    }
    if (!whole) {
      const int slot0 = start / run, count = (place.end - 1) / run - slot0 + 1;
      uint32_t* counter = p.counters + token * units + unit;
      __threadfence();
      __syncthreads();
      if (threadIdx.x == 0) {
        is_last = atomicAdd(counter, 1u) == uint32_t(count - 1);
        if (is_last) *counter = 0;
      }
      __syncthreads();
      if (is_last) {
        __threadfence();
        for (int head = warp; head < heads; head += kWarps) {
          auto part = [&](int s) { return part_of(slot0 + s, start >= (slot0 + s) * run, head); };
          float highest = -INFINITY, all = 0;
          for (int s = lane; s < count; s += 32) highest = fmaxf(highest, __ldcg(part(s) + kWidth));
          highest = warp_max(highest);
          for (int s = lane; s < count; s += 32) {
            const float2 top_sum = __ldcg(reinterpret_cast<const float2*>(part(s) + kWidth));
            all += top_sum.x == -INFINITY ? 0.0f : exp2f(top_sum.x - highest) * top_sum.y;
          }
          all = warp_sum(all);
          for (int d = lane * 4; d - lane * 4 < kWidth; d += 128) {
            float4 value = make_float4(0, 0, 0, 0);
            for (int s0 = 0; s0 < count;
                 s0 += 32) {  // shares first, a lane a part, then independent loads of the parts
              const float its = s0 + lane < count ? __ldcg(part(s0 + lane) + kWidth) : -INFINITY,
                          share = its == -INFINITY ? 0.0f : exp2f(its - highest);
              const int some = min(32, count - s0);
#pragma unroll 8
              for (int s = 0; s < some; s++) {
                const float f = __shfl_sync(~0u, share, s);
                if (d >= kWidth) continue;
                const float4 x = __ldcg(reinterpret_cast<const float4*>(part(s0 + s) + d));
                value.x += f * x.x, value.y += f * x.y, value.z += f * x.z, value.w += f * x.w;
              }
            }
            if (d < kWidth) finish(head, highest, all, value, d);
          }
        }
      }
    }
    __syncthreads();
    if (chunk < end) {
      do token++;
      while (places[token].end <= chunk);
    }
  }
}

template <int kWidth>
bool run(ix_stream* stream, const Gpu& gpu, Problem p, const KvCache<__nv_bfloat16>& cache, int tokens) {
  const int units = cache.heads * p.pieces, blocks = gpu.sms * Ring<kWidth>::kBlocksPerSm;
  p.slots = (blocks < kMaxBlocks ? blocks : kMaxBlocks) / units;
  if (p.slots < 1) p.slots = 1;
  const int launches = divide_up(tokens, kMaxTokens), most = divide_up(tokens, launches);
  if (units > kMaxBlocks || int64_t(most) * units > kStreamCounters) return false;
  for (p.first_token = 0; p.first_token < tokens; p.first_token += most) {
    p.tokens = tokens - p.first_token < most ? tokens - p.first_token : most;
    launch_kernel<decode_kernel<kWidth>>(stream, gpu, p.slots * units, kWarps * 32, Ring<kWidth>::shared(p.tokens), 1,
                                         p, cache);
  }
  return true;
}
}  // namespace

namespace ix::cuda {

bool decode_attention(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor* t = call->operands;
  const KvCache<__nv_bfloat16> cache(t[1]);
  const int heads = int(call->attrs[0].i), tokens = t[0].dims[0], sequences = t[3].dims[0], group = heads / cache.heads;
  const Problem p{Floats(t[0]),
                  Floats(t[7]),
                  Ints(t[5]),
                  static_cast<const int32_t*>(t[2].data),
                  static_cast<const int32_t*>(t[3].data),
                  static_cast<const int32_t*>(t[4].data),
                  static_cast<const float*>(t[6].data),
                  static_cast<float*>(call->workspace),
                  stream->counters,
                  0,
                  0,
                  sequences,
                  group,
                  divide_up(group, kHeads),
                  0,
                  int(call->attrs[2].i),
                  float(call->attrs[1].f),
                  float(call->attrs[3].f)};
  const auto odd = [](const ix_tensor& x) {
    return reinterpret_cast<uintptr_t>(x.data) % 16 != 0 || x.stride % 4 != 0;
  };
  const Gpu gpu = current_gpu();
  // more tokens a sequence: K and V would be read too often. Below sm_90 the rings are too large (or not yet tuned).
  if (gpu.capability < 90 || gpu.capability >= 120 || tokens <= 0 || tokens > 4 * sequences || cache.tokens % 16 != 0 ||
      odd(t[0]) || odd(t[7]))
    return false;
  switch (cache.width) {
    case 64:
      return run<64>(stream, gpu, p, cache, tokens);
    case 80:
      return run<80>(stream, gpu, p, cache, tokens);
    case 96:
      return run<96>(stream, gpu, p, cache, tokens);
    case 128:
      return run<128>(stream, gpu, p, cache, tokens);
    case 256:
      return run<256>(stream, gpu, p, cache, tokens);
    default:
      return false;
  }
}

// Two parts of each block: its run may end one token and begin another.
size_t decode_attention_workspace(const ix_kernel_call* call) {
  return size_t(2) * kMaxBlocks * kHeads * (call->operands[1].dims[3] + 4) * sizeof(float);
}

}  // namespace ix::cuda
