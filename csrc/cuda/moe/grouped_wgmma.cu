// Grouped products on sm_90: a ring of shared memory is filled by the copy engine and emptied by wgmma (weights are the
// M side). Blocks take tiles in turn, the ring runs on across them. Few tokens: small tiles; each block groups the
// pairs itself, and warps round what they gather. Many: sort_pairs did.
#include "cuda/moe/group.cuh"
#include "cuda/ptx/mma.cuh"

namespace {
using namespace ix::cuda;

constexpr int kLine = 128;                     // bytes of a row's 64 k, which a stage holds
constexpr int kMostFewPairs = 256, kBox = 32;  // sorted tokens of one copy

// kTokens of a chunk; kGroups warpgroups multiply, each kTiles times 64 rows; behind them a warp copies and, kDirect
// (blocks group and round themselves), others gather.
template <int kTokens_, int kGroups_, int kTiles_, int kMoreWarps_, bool kDirect_>
struct Shape {
  static constexpr int kTokens = kTokens_, kGroups = kGroups_, kTiles = kTiles_, kMoreWarps = kMoreWarps_;
  static constexpr bool kDirect = kDirect_;
  static constexpr int kRows = kGroups * kTiles * 64, kThreads = (kGroups * 4 + 1 + kMoreWarps) * 32,
                       kPerSm = kGroups == 1 ? 2 : 1;
  static constexpr int kWeightBytes = kRows * kLine, kStageBytes = kWeightBytes + kTokens * kLine;
  // beside the ring: chunks, order and experts of a block that groups itself
  static constexpr int kGroupingBytes = kDirect ? kMostFewPairs * int(sizeof(ExpertPairs) + 2 * sizeof(int)) : 0;
  static constexpr int kStages = (224 / kPerSm * 1024 - kGroupingBytes) / kStageBytes;
  static_assert(!kDirect || kStages >= kMoreWarps, "a warp that gathers would run ahead by more than the ring");
};
using Few = Shape<kDirectTokens, 1, 1, 8, true>;
using Many = Shape<kManyTokens, 2, 2, 3, false>;  // registers move by warpgroups: 3 warps idle

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define IX_R8(c, o)                                                                                           \
  "+f"(c[o]), "+f"(c[o + 1]), "+f"(c[o + 2]), "+f"(c[o + 3]), "+f"(c[o + 4]), "+f"(c[o + 5]), "+f"(c[o + 6]), \
      "+f"(c[o + 7])
__device__ inline void wgmma_192(float (&c)[96], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%"
      "30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%"
      "58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%"
      "86,%87,%88,%89,%90,%91,%92,%93,%94,%95}, "
      "%96, %97, 1, 1, 1, 0, 0;"
      : IX_R8(c, 0), IX_R8(c, 8), IX_R8(c, 16), IX_R8(c, 24), IX_R8(c, 32), IX_R8(c, 40), IX_R8(c, 48), IX_R8(c, 56),
        IX_R8(c, 64), IX_R8(c, 72), IX_R8(c, 80), IX_R8(c, 88)
      : "l"(a), "l"(b));
}
#undef IX_R8
__device__ inline uint64_t policy_normal() {
  uint64_t p;
  asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(p));
  return p;
}
__device__ inline void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Where a warp stands in the ring.
template <int kStages>
struct Ring {
  uint32_t base, full, empty;  // shared memory: the stages, barriers of 8 bytes
  int slot = 0, phase = 0;
  __device__ void next() {
    if (++slot == kStages) slot = 0, phase ^= 1;
  }
};

// The tile's products and sums, for a chunk of at most kN pairs, by one warpgroup.
template <class S, int kN>
__device__ void multiply(const GroupedProduct& g, Ring<S::kStages>& ring, int steps, const Tile& tile,
                         const int* order) {
  constexpr int kSmaller = kN == 192 ? 128 : kN / 2;
  if constexpr (kN > 8 && kN * 4 > S::kTokens)
    if (tile.count <= kSmaller) return multiply<S, kSmaller>(g, ring, steps, tile, order);
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const bool signals = threadIdx.x % 128 == 0;
  float sums[S::kTiles][kN / 2] = {};
  int before = -1;
  for (int i = 0; i < steps; i++) {
    barrier_wait(ring.full + 8 * ring.slot, ring.phase);
    const uint32_t w = ring.base + ring.slot * S::kStageBytes + group * S::kTiles * 64 * kLine,
                   x = ring.base + ring.slot * S::kStageBytes + S::kWeightBytes;
#pragma unroll
    for (int m = 0; m < S::kTiles; m++) wgmma_pin(sums[m]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
      for (int m = 0; m < S::kTiles; m++) {
        const uint64_t a = wgmma_tile(w + m * 64 * kLine + k * 32), b = wgmma_tile(x + k * 32);
        if constexpr (kN == 192)
          wgmma_192(sums[m], a, b);
        else if constexpr (kN == 128)
          wgmma_into<kN>(sums[m], a, b, 1);
        else
          wgmma<kN>(sums[m], a, b);
      }
    wgmma_commit();
    wgmma_wait<1>();  // the stage before this one has been read
    if (before >= 0 && signals) barrier_arrive(ring.empty + 8 * before);
    before = ring.slot;
    ring.next();
  }
  wgmma_wait<0>();
  if (signals && before >= 0) barrier_arrive(ring.empty + 8 * before);
  const int row = tile.row + group * S::kTiles * 64 + warp * 16 + lane / 4;
  int64_t at[(kN + 31) / 32];  // where the pairs at places lane, lane + 32, … go
#pragma unroll
  for (int q = 0; q < (kN + 31) / 32; q++) {
    const int* place = order + tile.first + min(q * 32 + lane, tile.count - 1);
    at[q] = g.output(S::kDirect ? *place : __ldcg(place));
  }
  auto write = [&](auto* y) {
#pragma unroll
    for (int j = 0; j < kN / 4; j++) {
      const int place = j / 2 * 8 + lane % 4 * 2 + j % 2;
      auto* to = y + __shfl_sync(~0u, at[j / 8], place % 32) + row;
      if (place >= tile.count) continue;
#pragma unroll
      for (int m = 0; m < S::kTiles; m++)
#pragma unroll
        for (int half = 0; half < 2; half++)
          if (row + m * 64 + half * 8 < g.n)
            store(to + m * 64 + half * 8, Vector<1>{sums[m][j / 2 * 4 + half * 2 + j % 2]});
    }
  };
  if (g.y_bf16)
    write(static_cast<__nv_bfloat16*>(g.y));
  else
    write(static_cast<float*>(g.y));
}
#endif

template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kPerSm)
    grouped_kernel(const __grid_constant__ CUtensorMap w_map, const __grid_constant__ CUtensorMap x_map,
                   const __grid_constant__ GroupedProduct g, int row_tiles) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) char shared[];
  __shared__ __align__(8) uint64_t barriers[2 * S::kStages];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  Ring<S::kStages> ring{shared_address(shared), shared_address(barriers), shared_address(barriers + S::kStages)};
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; i++) {
      barrier_init(ring.full + 8 * i, S::kDirect ? 2 : 1);
      barrier_init(ring.empty + 8 * i, S::kGroups);
    }
    barrier_init_done();
    prefetch_map(w_map);
  }
  allow_next_kernel();
  wait_for_earlier_kernels();  // which weights are needed depends on them
  int num_chunks;
  const ExpertPairs* chunks = g.chunks;
  const int* order = g.order;
  if constexpr (S::kDirect) {
    ExpertPairs* my_chunks = reinterpret_cast<ExpertPairs*>(shared + S::kStages * S::kStageBytes);
    int* my_order = reinterpret_cast<int*>(my_chunks + g.pairs());
    num_chunks = group_few_pairs(g, S::kTokens, my_order + g.pairs(), my_chunks, my_order);
    chunks = my_chunks, order = my_order;
  } else {
    __syncthreads();
    num_chunks = __ldcg(g.totals);
  }
  auto tile_number = [&](int item) {
    const ExpertPairs* of = chunks + item / row_tiles;
    ExpertPairs e;
    if constexpr (S::kDirect) {
      e = *of;
    } else {
      const uint4 raw = load_past_l1(static_cast<const void*>(of));
      e = {int(raw.x), int(raw.y), int(raw.z), int(raw.w)};
    }
    return tile_of(item, e, S::kTokens, S::kRows, row_tiles);
  };
  const int items = num_chunks * row_tiles, steps = int(g.w_stride / 64);

  if (warp < S::kGroups * 4) {
    if constexpr (S::kGroups == 2) take_registers<232>();
    if constexpr (S::kDirect) zero_missing(g, blockIdx.x * 4 + warp, gridDim.x * 4);
    for (int item = blockIdx.x; item < items; item += gridDim.x)
      multiply<S, S::kTokens>(g, ring, steps, tile_number(item), order);
    return;
  }
  if constexpr (S::kGroups == 2) give_registers<40>();
  if (warp == S::kGroups * 4) {
    if (lane == 0) {
      const uint64_t once = policy_evict_first(), again = policy_normal();
      bool used = false;  // the ring's first round finds it empty
      for (int item = blockIdx.x; item < items; item += gridDim.x) {
        const Tile tile = tile_number(item);
        const int row = int(tile.expert * g.expert_rows) + tile.row,
                  boxes = S::kDirect ? 0 : (tile.count + kBox - 1) / kBox;
        for (int i = 0; i < steps; i++) {
          if (used) barrier_wait(ring.empty + 8 * ring.slot, ring.phase ^ 1);
          const uint32_t to = ring.base + ring.slot * S::kStageBytes, full = ring.full + 8 * ring.slot;
          barrier_expect(full, S::kWeightBytes + boxes * kBox * kLine);
          copy_box(to, &w_map, i * 64, row, full, tile.shares ? again : once);
          for (int b = 0; b < boxes; b++)
            copy_box(to + S::kWeightBytes + b * kBox * kLine, &x_map, i * 64, tile.first + b * kBox, full, again);
          ring.next();
          used |= ring.phase != 0;
        }
      }
    }
    __syncwarp();
  } else if constexpr (S::kDirect) {
    // a stage each in turn; lane l knows where the pair at place l of the chunk begins
    const int mine = warp - S::kGroups * 4 - 1;
    int64_t from = 0;
    Tile tile{};
    for (int item = blockIdx.x, step = 0, number = -1, i = 0; item < items; i++) {
      if (number != item) {
        tile = tile_number(item), number = item;
        from = g.input(order[tile.first + min(lane, tile.count - 1)]);
      }
      if (i % S::kMoreWarps == mine) {
        // sums of places beyond the chunk are dropped, so that what stands there does not matter
        const uint32_t to = ring.base + ring.slot * S::kStageBytes + S::kWeightBytes;
        constexpr int kPasses = S::kTokens / 2;  // 16 lanes hold 64 k of a token
        const int column = lane % 16 * 4, k = step * 64 + column;
        Vector<4> v[kPasses];
#pragma unroll
        for (int j = 0; j < kPasses; j++) {
          if (j * 2 >= tile.count) break;
          const int64_t at = __shfl_sync(~0u, from, j * 2 + lane / 16) + k;
          v[j] = k < g.k ? g.load_input<4>(at) : Vector<4>{};
          if (k + 4 > g.k)
#pragma unroll
            for (int c = 0; c < 4; c++) v[j].v[c] = k + c < g.k ? v[j].v[c] : 0;
        }
        if (i >= S::kStages) barrier_wait(ring.empty + 8 * ring.slot, ring.phase ^ 1);
#pragma unroll
        for (int j = 0; j < kPasses; j++) {
          if (j * 2 >= tile.count) break;
          const int place = j * 2 + lane / 16;
          store_shared(to + place * kLine + (column / 8 ^ place % 8) * 16 + column % 8 * 2,
                       pack_bf16(v[j].v[0], v[j].v[1]), pack_bf16(v[j].v[2], v[j].v[3]));
        }
        fence_shared_for_async();
        __syncwarp();
        if (lane == 0) barrier_arrive(ring.full + 8 * ring.slot);
      }
      ring.next();
      if (++step == steps) step = 0, item += gridDim.x;
    }
  }
#endif
}

template <class S>
bool run(ix_stream* stream, const Gpu& gpu, const GroupedProduct& g) {
  CUtensorMap w_map, x_map;
  if (!make_tensor_map(&w_map, g.w, g.w_stride, g.num_experts * g.expert_rows, g.w_stride, S::kRows)) return false;
  if (!make_tensor_map(&x_map, g.sorted, g.w_stride, g.pairs(), g.w_stride, kBox)) return false;
  if (!S::kDirect) sort_pairs(stream, gpu, g, S::kTokens);
  const int row_tiles = divide_up(g.n, S::kRows);
  const int64_t items = int64_t(most_chunks(g, S::kTokens)) * row_tiles, most = S::kPerSm * gpu.sms;
  launch_kernel<grouped_kernel<S>>(stream, gpu, int(items < most ? items : most), S::kThreads,
                                   S::kStages * S::kStageBytes + S::kGroupingBytes, 1, w_map, x_map, g, row_tiles);
  return true;
}
}  // namespace

namespace ix::cuda {

bool groups_itself(const GroupedProduct& g) {
  const bool wide = reinterpret_cast<uintptr_t>(g.x) % 16 == 0 && g.x_stride % 4 == 0 && (!g.per_slot || g.k % 4 == 0);
  return wide && g.tokens <= kDirectTokens && g.pairs() <= kMostFewPairs;
}

bool grouped_wgmma(ix_stream* stream, const Gpu& gpu, const GroupedProduct& g, int chunk_tokens) {
  if (gpu.capability != 90) return false;
  return chunk_tokens == kDirectTokens ? run<Few>(stream, gpu, g) : run<Many>(stream, gpu, g);
}

}  // namespace ix::cuda
