// Prompt attention on sm_90a. A block for each multiprocessor takes tiles of 128 rows until there are none: a warp
// finds them, a warp has the copy engine fill a ring of keys and values, a box a block and 64 columns, straight across
// tiles; two warpgroups own 64 rows each. A warpgroup starts the scores of one tile of keys before the output of the
// tile before, so that its softmax runs beside that product, and the two warpgroups take turns in starting products, so
// that the softmax of one runs beside those of the other (FlashAttention-3, arXiv 2407.08608). Weights stay in
// registers; values are read transposed.
#include "cuda/attention/prompt.h"
#include "cuda/ptx/async.cuh"
#include "cuda/ptx/mma.cuh"

namespace {
using namespace ix::cuda;

constexpr int kGroups = 2, kRows = 64 * kGroups, kThreads = 128 * (1 + kGroups);
constexpr int kBlock = 64;  // positions

template <int kWidth>
struct Plan {
  static constexpr int kHalves = (kWidth + 63) / 64;  // lines of 64 columns that hold a row
  static constexpr int kKeys = kWidth > 128 ? 64 : 128, kStages = 2;
  static constexpr int kQueries = kRows * kHalves * 128, kTile = kKeys * kHalves * 128;  // bytes
  static constexpr int kShared = kQueries + 2 * kStages * kTile;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// A ring of stages in shared memory: a pair of barriers each, and where a thread stands in it.
template <int kStages>
struct Ring {
  uint32_t full, empty;  // first barriers
  int stage = 0, phase = 0;
  __device__ void step() {
    if (++stage == kStages) stage = 0, phase ^= 1;
  }
  __device__ void wait_full() const { barrier_wait(full + 8 * stage, phase); }
  __device__ void wait_empty() const { barrier_wait(empty + 8 * stage, phase ^ 1); }
};

struct Work {
  PromptTile tile;
  int kv_head;  // -1: no more
};
#endif

// Warp 0 copies, warp 1 deals out work, warpgroups 1 and 2 compute.
template <int kWidth, class Out>
__global__ void __launch_bounds__(kThreads, 1)
    wgmma_kernel(const __grid_constant__ CUtensorMap map, Prompt<Out> p, int kv_heads, int blocks, uint32_t* counters) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using P = Plan<kWidth>;
  constexpr int kKeys = P::kKeys, kBlocks = kKeys / kBlock, kStages = P::kStages, kHalves = P::kHalves;
  constexpr int kPart = kWidth > 128 ? 128 : kWidth, kParts = kWidth / kPart;  // columns of an output product
  extern __shared__ __align__(1024) char shared[];
  __shared__ __align__(8) uint64_t barriers[4 * kStages + 4];
  __shared__ Work works[2];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t queries = shared_address(shared), keys = queries + P::kQueries, values = keys + kStages * P::kTile,
                 first_barrier = shared_address(barriers);
  Ring<kStages> key_ring{first_barrier, first_barrier + 8 * kStages},
      value_ring{first_barrier + 16 * kStages, first_barrier + 24 * kStages};
  Ring<2> work_ring{first_barrier + 32 * kStages, first_barrier + 32 * kStages + 16};
  allow_next_kernel();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; i++) {
      barrier_init(key_ring.full + 8 * i, 1), barrier_init(key_ring.empty + 8 * i, 4 * kGroups);
      barrier_init(value_ring.full + 8 * i, 1), barrier_init(value_ring.empty + 8 * i, 4 * kGroups);
    }
    for (int i = 0; i < 2; i++)
      barrier_init(work_ring.full + 8 * i, 1), barrier_init(work_ring.empty + 8 * i, 4 * kGroups + 1);
    barrier_init_done();
  }
  __syncthreads();

  if (warp < 4) {
    give_registers<40>();
    if (warp == 1) {
      // Two tiles a block are dealt out, heavy to light and back again; then who is first takes the next.
      const uint32_t grid = gridDim.x;
      for (uint32_t i = 0, index = blockIdx.x;; i++) {
        PromptTile tile;
        const bool found = find_tile(p, index / kv_heads, kRows, tile);
        if (!found || tile.last >= 0) {
          work_ring.wait_empty();
          if (lane == 0) {
            works[work_ring.stage] = {tile, found ? int(index % kv_heads) : -1};
            barrier_arrive(work_ring.full + 8 * work_ring.stage);
          }
          work_ring.step();
        }
        if (i == 0) wait_for_earlier_kernels();
        if (!found) break;
        if (i == 0) {
          index = 2 * grid - 1 - index;
        } else {
          if (lane == 0) index = 2 * grid + atomicAdd(counters, 1u);
          index = __shfl_sync(~0u, index, 0);
        }
      }
      if (lane == 0 && atomicAdd(counters + 1, 1u) == gridDim.x - 1) counters[0] = counters[1] = 0;
    } else if (warp == 0) {
      wait_for_earlier_kernels();
      for (;; work_ring.step()) {
        work_ring.wait_full();
        const Work& work = works[work_ring.stage];
        const int kv_head = work.kv_head, first = work.tile.first, last = work.tile.last;
        if (kv_head < 0) break;
        const int32_t* table = p.table[p.seq_row[work.tile.sequence]];
        __syncwarp();
        if (lane == 0) barrier_arrive(work_ring.empty + 8 * work_ring.stage);
        int known = INT_MIN / 2, mine = -1;  // a lane knows one of 32 table entries, from `known` on
        for (int at = first / kKeys * kBlocks; at * kBlock <= last; at += kBlocks) {
          if (at + kBlocks > known + 32) {
            known = at;
            const int b = known + lane;
            mine = b >= first / kBlock && b <= last / kBlock ? table[b] : -1;  // outside of the map: zeros
            if (mine >= blocks) mine = -1;
          }
          int block[kBlocks];
#pragma unroll
          for (int b = 0; b < kBlocks; b++) block[b] = __shfl_sync(~0u, mine, at - known + b);
          auto fill = [&](uint32_t to, Ring<kStages>& ring, int plane) {
            const uint32_t full = ring.full + 8 * ring.stage;
            ring.wait_empty();
            barrier_expect(full, P::kTile);
#pragma unroll
            for (int b = 0; b < kBlocks; b++)
#pragma unroll
              for (int h = 0; h < kHalves; h++)
                copy_box(to + ring.stage * P::kTile + (h * kKeys + b * kBlock) * 128, &map, h * 64, 0, plane, block[b],
                         full);
          };
          if (lane == 0) {
            fill(keys, key_ring, 2 * kv_head);
            fill(values, value_ring, 2 * kv_head + 1);
          }
          __syncwarp();
          key_ring.step(), value_ring.step();
        }
      }
    }
    return;
  }

  take_registers<232>();
  const int group = warp / 4 - 1, g = lane / 4, t = lane % 4, first_row = group * 64 + warp % 4 * 16;
  const float to_log2 = (p.softcap > 0 ? 1.0f : p.scale) * kLog2e, cap_factor = 2 * kLog2e * p.scale / p.softcap;
  const int reach = p.window > 0 ? p.window - 1 : INT_MAX / 2;  // a row sees so many positions before its own
  float out[kParts][kPart / 2], scores[kKeys / 2], top[2], sum[2], keep[2];
  uint32_t weights[kKeys / 16][4];

  auto start_scores = [&] {
    wgmma_pin(scores);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kWidth / 16; k++)
      wgmma_into<kKeys>(scores, wgmma_tile(queries + (k / 4 * kRows + group * 64) * 128 + k % 4 * 32),
                        wgmma_tile(keys + key_ring.stage * P::kTile + k / 4 * kKeys * 128 + k % 4 * 32), k > 0);
    wgmma_commit();
  };
  auto start_output = [&] {
#pragma unroll
    for (int part = 0; part < kParts; part++) wgmma_pin(out[part]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kKeys / 16; k++)
#pragma unroll
      for (int part = 0; part < kParts; part++)
        wgmma_registers<kPart>(
            out[part], weights[k],
            wgmma_tile_transposed(values + value_ring.stage * P::kTile + (part * 2 * kKeys + k * 16) * 128,
                                  kKeys * 128));
    wgmma_commit();
  };
  auto wait_output = [&]<int kPending>() {
    wgmma_wait<kPending>();
#pragma unroll
    for (int part = 0; part < kParts; part++) wgmma_pin(out[part]);
  };
  auto release = [&](auto& ring) {
    if (lane == 0) barrier_arrive(ring.empty + 8 * ring.stage);
    ring.step();
  };

  // The warpgroup's queries of 64 columns, 8 threads a line
  float4 fetched[4][2];
  auto fetch = [&](const Work& work, int h) {
    const int piece = h * 8 + lane % 8;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const PromptRow r = find_row(p, work.tile, group * 64 + i * 16 + threadIdx.x % 128 / 8);
      const float* from = p.q[r.token] + (work.kv_head * p.group + r.head) * kWidth + piece * 8;
      if (kWidth % 64 == 0 || piece < kWidth / 8)
        fetched[i][0] = load_past_l1(from), fetched[i][1] = load_past_l1(from + 4);
    }
  };
  auto place = [&](int h) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int row = i * 16 + threadIdx.x % 128 / 8, piece = lane % 8;
      const float4 a = fetched[i][0], b = fetched[i][1];
      if (kWidth % 64 == 0 || h * 8 + piece < kWidth / 8)
        store_shared(queries + (h * kRows + group * 64 + row) * 128 + (piece ^ row % 8) * 16,
                     make_uint4(pack_bf16(a.x, a.y), pack_bf16(a.z, a.w), pack_bf16(b.x, b.y), pack_bf16(b.z, b.w)));
    }
  };
  auto place_rest = [&](const Work& work) {  // the first 64 columns have been fetched
    place(0);
#pragma unroll
    for (int h = 1; h < kHalves; h++) fetch(work, h), place(h);
    fence_shared_for_async();
    sync_threads(1 + group, 128);
    key_ring.wait_full();
  };

  // Barriers 1 and 2 belong to a warpgroup, 3 and 4 are its turn.
  auto pass_turn = [&] { arrive_threads(3 + (group ^ 1), 256); };

  wait_for_earlier_kernels();
  if (group > 0) pass_turn();
  work_ring.wait_full();
  if (works[work_ring.stage].kv_head < 0) return;
  fetch(works[work_ring.stage], 0);
  place_rest(works[work_ring.stage]);
  start_scores();
  for (;;) {
    const Work& work = works[work_ring.stage];
    const int tile_last = work.tile.last, first = work.tile.first / kKeys, count = tile_last / kKeys + 1 - first;
    const int all_see = work.tile.old + work.tile.first_row / p.group;  // every row sees the positions up to here
    int last[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      last[h] = find_row(p, work.tile, first_row + h * 8 + g).last;
      top[h] = -INFINITY, sum[h] = 0;
    }
#pragma unroll
    for (int part = 0; part < kParts; part++)
#pragma unroll
      for (int j = 0; j < kPart / 2; j++) out[part][j] = 0;

    auto soften = [&](int i) {  // scores to weights, still f32
      const int from = (first + i) * kKeys;
      if (p.softcap > 0) {
#pragma unroll
        for (int j = 0; j < kKeys / 2; j++) scores[j] = cap_score(scores[j], cap_factor, p.softcap);
      }
      if (from + kKeys - 1 > all_see || from < tile_last - reach) {
#pragma unroll
        for (int j = 0; j < kKeys / 2; j++) {
          const int position = from + j / 4 * 8 + 2 * t + j % 2;
          if (position > last[j / 2 % 2] || position < last[j / 2 % 2] - reach) scores[j] = -INFINITY;
        }
      }
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float highest = -INFINITY, base;
#pragma unroll
        for (int j = 2 * h; j < kKeys / 2; j += 4) highest = fmaxf(highest, fmaxf(scores[j], scores[j + 1]));
        keep[h] = raise_top(top[h], highest, to_log2, base);
        sum[h] *= keep[h];
#pragma unroll
        for (int j = 2 * h; j < kKeys / 2; j += 4) {
          scores[j] = exp2_fast(fmaf(scores[j], to_log2, -base));
          scores[j + 1] = exp2_fast(fmaf(scores[j + 1], to_log2, -base));
          sum[h] += scores[j] + scores[j + 1];
        }
      }
    };
    auto round_weights = [&] {
#pragma unroll
      for (int k = 0; k < kKeys / 16; k++)
#pragma unroll
        for (int e = 0; e < 4; e++) weights[k][e] = pack_bf16(scores[k * 8 + e * 2], scores[k * 8 + e * 2 + 1]);
    };

    wgmma_wait<0>();
    wgmma_pin(scores);
    release(key_ring);
    soften(0);
    round_weights();
    for (int i = 1; i < count; i++) {
      sync_threads(3 + group, 256);
      key_ring.wait_full();
      start_scores();
      value_ring.wait_full();
      start_output();
      pass_turn();
      wgmma_wait<1>();
      wgmma_pin(scores);
      release(key_ring);
      soften(i);
      wait_output.template operator()<0>();
      release(value_ring);
      round_weights();
#pragma unroll
      for (int part = 0; part < kParts; part++)
#pragma unroll
        for (int j = 0; j < kPart / 2; j++) out[part][j] *= keep[j / 2 % 2];
    }
    value_ring.wait_full();
    const int known = work.tile.context - (first + count - 1) * kKeys;
    if (known < kKeys) {  // behind the sequence's last position there may be anything
      for (int j = threadIdx.x % 128; j < (kKeys - known) * kHalves * 8; j += 128)
        store_shared(values + value_ring.stage * P::kTile + (j % kHalves * kKeys + known + j / kHalves / 8) * 128 +
                         j / kHalves % 8 * 16,
                     make_uint4(0, 0, 0, 0));
      fence_shared_for_async();
      sync_threads(1 + group, 128);
    }
    Ring<2> next_ring = work_ring;
    next_ring.step();
    next_ring.wait_full();
    const Work& next = works[next_ring.stage];
    const bool more = next.kv_head >= 0;
    // The next tile's queries and first scores run beside the last output of this one. If there is none, the scores
    // mean nothing: a branch around products would make the compiler wait for each.
    if (more) fetch(next, 0);
    start_output();
    if (more) place_rest(next);
    start_scores();
    wait_output.template operator()<1>();
    release(value_ring);

#pragma unroll
    for (int h = 0; h < 2; h++) {
      const PromptRow r = find_row(p, work.tile, first_row + h * 8 + g);
      const int head = work.kv_head * p.group + r.head;
      const float share = finish_row(top[h], sum[h], to_log2, p.sinks ? p.sinks + head : nullptr);
      Out* to = p.y[r.token] + head * kWidth + 2 * t;
#pragma unroll
      for (int part = 0; part < kParts; part++)
#pragma unroll
        for (int j = 0; j < kPart / 8; j++)
          if (r.stored)
            store_pair(to + part * kPart + j * 8, out[part][j * 4 + 2 * h] * share,
                       out[part][j * 4 + 2 * h + 1] * share);
    }
    __syncwarp();
    release(work_ring);
    if (!more) break;
  }
  wgmma_wait<0>();
#endif
}

template <int kWidth, class Out>
bool run(ix_stream* stream, const Gpu& gpu, const Prompt<Out>& p, const KvCache<__nv_bfloat16>& cache, int tokens) {
  const cuuint64_t plane = cuuint64_t(cache.tokens) * kWidth * 2;
  const cuuint64_t sizes[4] = {kWidth, kBlock, 2 * cuuint64_t(cache.heads), cuuint64_t(cache.blocks)},
                   strides[3] = {kWidth * 2, plane, cuuint64_t(cache.block_stride)};
  const cuuint32_t box[4] = {64, kBlock, 1, 1};
  CUtensorMap map;
  if (!make_tensor_map(&map, cache.data, 4, sizes, strides, box)) return false;
  using P = Plan<kWidth>;
  const int most = most_tiles(tokens, p.sequences, p.group, p.skipped, kRows) * cache.heads;
  launch_kernel<wgmma_kernel<kWidth, Out>>(stream, gpu, most < gpu.sms ? most : gpu.sms, kThreads, P::kShared, 1, map,
                                           p, cache.heads, cache.blocks, stream->counters);
  return true;
}
}  // namespace

namespace ix::cuda {

template <class Out>
bool prompt_wgmma(ix_stream* stream, const Gpu& gpu, const Prompt<Out>& p, const KvCache<__nv_bfloat16>& cache,
                  int tokens) {
  if (gpu.capability != 90 || cache.tokens != kBlock) return false;
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
template bool prompt_wgmma(ix_stream*, const Gpu&, const Prompt<float>&, const KvCache<__nv_bfloat16>&, int);
template bool prompt_wgmma(ix_stream*, const Gpu&, const Prompt<__nv_bfloat16>&, const KvCache<__nv_bfloat16>&, int);

}  // namespace ix::cuda
