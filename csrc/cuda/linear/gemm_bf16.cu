// Many tokens on sm_90a: blocks take tiles of kRows rows of weights (the M side) x kTokens tokens in turn. A thread has
// the copy engine fill a ring of shared memory, straight across tiles; warpgroups multiply 64 rows each. Blocks of a
// cluster need not share what they copy: that has brought nothing.
#include "cuda/linear/gemm.h"
#include "cuda/ptx/async.cuh"
#include "cuda/ptx/mma.cuh"

namespace {
using namespace ix::cuda;

constexpr int kStep = 64, kLine = 128;  // k of a stage, and their bytes

template <int kRows_, int kTokens_>
struct Plan {
  static constexpr int kRows = kRows_, kTokens = kTokens_, kGroups = kRows / 64, kThreads = 128 * (1 + kGroups);
  static constexpr int kWeights = kRows * kLine, kStage = kWeights + kTokens * kLine, kStages = 192 * 1024 / kStage;
  // A warp turns the sums of 16 rows x kPiece tokens round; lines are padded against bank conflicts.
  static constexpr int kPiece = 32, kSheetLine = 20, kSheet = kPiece * kSheetLine;
  static constexpr int kShared = kStages * kStage + kGroups * 4 * kSheet * 4;
  static constexpr int kSplitLine = kRows + 4;  // of the sums that two blocks with a part of K each exchange
  static_assert(kTokens * kSplitLine * 4 <= kStages * kStage);
};

struct Place {
  int row, token;  // first of the tile
};

// Numbers of tiles. token_group of them lie side by side, then come the next rows, and tokens beyond last: so the tiles
// under way at a time read about as many tokens as weights, which L2 holds.
struct Tiles {
  int rows, tokens, token_group;
  template <class P>
  __device__ Place place(int tile) const {
    const int group = tile / (token_group * rows), in_group = tile - group * token_group * rows,
              width = min(token_group, tokens - group * token_group);
    return {in_group / width * P::kRows, (group * token_group + in_group % width) * P::kTokens};
  }
};

template <class P>
__global__ void __launch_bounds__(P::kThreads, 1)
    gemm_kernel(const __grid_constant__ CUtensorMap w_map, const __grid_constant__ CUtensorMap x_map,
                const __grid_constant__ Bf16Product p, Tiles tiles, int split) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) char shared[];
  __shared__ __align__(8) uint64_t barriers[2 * P::kStages];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = blockIdx.x % split;
  const uint32_t base = shared_address(shared), full = shared_address(barriers), empty = full + 8 * P::kStages;
  if (threadIdx.x == 0) {
    for (int i = 0; i < P::kStages; i++) {
      barrier_init(full + 8 * i, 1);
      barrier_init(empty + 8 * i, P::kGroups);
    }
    barrier_init_done();
  }
  __syncthreads();
  allow_next_kernel();
  const int all_steps = int(p.w_stride / kStep), first_step = all_steps * part / split,
            steps = all_steps * (part + 1) / split - first_step;
  const int first_tile = blockIdx.x / split, stride = gridDim.x / split, num_tiles = tiles.rows * tiles.tokens;

  if (warp < 4) {
    give_registers<P::kGroups == 2 ? 40 : 32>();
    if (threadIdx.x == 0) {
      prefetch_map(&w_map);
      prefetch_map(&x_map);
      const uint64_t tokens = policy_evict_last(), weights = tiles.tokens == 1 ? policy_evict_first() : tokens;
      struct Walk {
        int tile, step;
        Place at;
      };
      Walk walk{first_tile, 0, tiles.place<P>(first_tile)}, behind = walk;
      auto advance = [&](Walk& w) {
        if (++w.step == steps) w = {w.tile + stride, 0, tiles.place<P>(w.tile + stride)};
      };
      auto copy_weights = [&](const Walk& w, int slot) {
        barrier_expect(full + 8 * slot, P::kStage);
        copy_box(base + slot * P::kStage, &w_map, (first_step + w.step) * kStep, w.at.row, full + 8 * slot, weights);
      };
      auto copy_tokens = [&](const Walk& w, int slot) {
        copy_box(base + slot * P::kStage + P::kWeights, &x_map, (first_step + w.step) * kStep, w.at.token,
                 full + 8 * slot, tokens);
      };
      int ahead = 0;
      for (; ahead < P::kStages && walk.tile < num_tiles; ahead++, advance(walk)) copy_weights(walk, ahead);
      wait_for_earlier_kernels();  // weights do not depend on them
      for (int i = 0; i < ahead; i++, advance(behind)) copy_tokens(behind, i);
      for (int slot = 0, phase = 0; walk.tile < num_tiles; advance(walk)) {
        barrier_wait(empty + 8 * slot, phase);
        copy_weights(walk, slot);
        copy_tokens(walk, slot);
        if (++slot == P::kStages) slot = 0, phase ^= 1;
      }
    }
    __syncwarp();
  } else {
    take_registers<P::kGroups == 2 ? 232 : 160>();
    wait_for_earlier_kernels();
    const int group = warp / 4 - 1, g = lane / 4, t = lane % 4;
    for (int tile = first_tile, slot = 0, phase = 0; tile < num_tiles; tile += stride) {
      float sums[P::kTokens / 2] = {};
      int before = -1;
      for (int i = 0; i < steps; i++) {
        barrier_wait(full + 8 * slot, phase);
        const uint32_t w = base + slot * P::kStage + group * 64 * kLine, x = base + slot * P::kStage + P::kWeights;
        wgmma_pin(sums);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; k++) wgmma_into<P::kTokens>(sums, wgmma_tile(w + k * 32), wgmma_tile(x + k * 32), 1);
        wgmma_commit();
        wgmma_wait<1>();  // the stage before this one has been read
        if (before >= 0 && threadIdx.x % 128 == 0) barrier_arrive(empty + 8 * before);
        before = slot;
        if (++slot == P::kStages) slot = 0, phase ^= 1;
      }
      wgmma_wait<0>();
      wgmma_pin(sums);
      if (threadIdx.x % 128 == 0) barrier_arrive(empty + 8 * before);
      if (split > 1) {
        // the only tile; every stage has landed, and is read when all warpgroups are here
        float* sheet = reinterpret_cast<float*>(shared);
        sync_threads(1, 128 * P::kGroups);
#pragma unroll
        for (int j = 0; j < P::kTokens / 2; j++)
          sheet[(j / 4 * 8 + 2 * t + j % 2) * P::kSplitLine + group * 64 + warp % 4 * 16 + g + j % 4 / 2 * 8] = sums[j];
        break;
      }
      const Place at = tiles.place<P>(tile);
      float* sheet = reinterpret_cast<float*>(shared + P::kStages * P::kStage) + (warp - 4) * P::kSheet;
      const int row = at.row + group * 64 + warp % 4 * 16 + t * 4;
#pragma unroll
      for (int piece = 0; piece < P::kTokens / P::kPiece; piece++) {
#pragma unroll
        for (int j = 0; j < P::kPiece / 2; j++)
          sheet[(j / 4 * 8 + 2 * t + j % 2) * P::kSheetLine + g + j % 4 / 2 * 8] = sums[piece * P::kPiece / 2 + j];
        __syncwarp();
#pragma unroll 1
        for (int i = g; i < P::kPiece; i += 8) {
          const int token = at.token + piece * P::kPiece + i;
          if (token < p.tokens)
            store_results(p, *reinterpret_cast<float(*)[4]>(sheet + i * P::kSheetLine + t * 4), token, row);
        }
        __syncwarp();
      }
    }
  }
  if (split == 1) return;
  cluster_sync();  // both sheets are written
  if (warp >= 4) {
    const Place at = tiles.place<P>(first_tile);
    const int mine = P::kRows / split / 4;  // quads of rows that this block finishes
    for (int i = threadIdx.x - 128; i < P::kTokens * mine; i += 128 * P::kGroups) {
      const int token = i / mine, row = (part * mine + i % mine) * 4;
      if (at.token + token >= p.tokens) break;
      const uint32_t sheet = base + (token * P::kSplitLine + row) * 4;
      const float4 a = load_cluster(sheet, 0), b = load_cluster(sheet, 1);
      store_results(p, {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}, at.token + token, at.row + row);
    }
  }
  cluster_sync();  // nobody leaves while its sheet is read
#endif
}

template <int kRows, int kTokens>
bool run(ix_stream* stream, const Gpu& gpu, const Bf16Product& p, int split) {
  using P = Plan<kRows, kTokens>;
  CUtensorMap w_map, x_map;
  if (p.w_stride / kStep < split || !make_tensor_map(&w_map, p.w, p.w_stride, p.n, p.w_stride, kRows) ||
      !make_tensor_map(&x_map, p.x, p.k, p.tokens, p.x_stride, kTokens))
    return false;
  const Tiles tiles{divide_up(p.n, kRows), divide_up(p.tokens, kTokens), 2048 / kTokens};
  const int num_tiles = tiles.rows * tiles.tokens;
  launch_kernel<gemm_kernel<P>>(stream, gpu, split > 1 || num_tiles < gpu.sms ? num_tiles * split : gpu.sms,
                                P::kThreads, P::kShared, split, w_map, x_map, p, tiles, split);
  return true;
}
}  // namespace

namespace ix::cuda {

bool gemm_product(ix_stream* stream, const Gpu& gpu, const Bf16Product& product, const GemmShape& shape) {
  if (gpu.capability != 90 || product.halves) return false;
  if (shape.rows == 192) return run<192, 128>(stream, gpu, product, shape.split);
  return shape.tokens == 128 ? run<128, 128>(stream, gpu, product, shape.split)
                             : run<128, 256>(stream, gpu, product, shape.split);
}

// A tile takes as long as it is large: what counts is the size of all tiles that the busiest block gets.
GemmShape choose_gemm(const Gpu& gpu, const Bf16Product& p) {
  auto tiles = [&](const GemmShape& s) { return int64_t(divide_up(p.n, s.rows)) * divide_up(p.tokens, s.tokens); };
  GemmShape best{128, 128, 1};
  if (2 * tiles(best) <= gpu.sms && !p.one_order && p.w_stride >= 1024) return {128, 128, 2};
  auto cost = [&](const GemmShape& s) { return divide_up(tiles(s), gpu.sms) * int64_t(s.rows * s.tokens); };
  if (p.tokens <= 256) return best;  // larger tiles would wait for the same weights
  for (const GemmShape& s : {GemmShape{192, 128, 1}, GemmShape{128, 256, 1}})
    if (cost(s) <= cost(best)) best = s;
  return best;
}

}  // namespace ix::cuda
