// Few tokens on sm_90: the weights pass once, at the speed of memory. A ring of shared memory is filled with weights by
// the copy engine and emptied by one warpgroup's wgmma (weights are the M side). Rows are cut so that the blocks are
// equally busy; where rows alone are too few, K is split over a cluster of 2.
#include "cuda/linear/bf16.h"
#include "cuda/ptx/async.cuh"
#include "cuda/ptx/mma.cuh"

namespace {
using namespace ix::cuda;

constexpr int kMaxStages = 12;

struct Shape {
  int rows, split, tiles, stages;  // rows of a tile, blocks that share one, number of tiles, depth of the ring
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
__device__ inline void sync_consumers() { asm volatile("bar.sync 1, 128;" ::: "memory"); }
#endif

// kTokens: the wgmma's N. kTiles: 64-row products that cover a tile. kBlocks: blocks of 64 k in a stage, past the end
// of K zeros. Warps 0-3 multiply, 4 copies weights and tokens.
template <int kTokens, int kTiles, int kBlocks, bool kHalves>
__global__ void __launch_bounds__(160)
    stream_kernel(const __grid_constant__ CUtensorMap w_map, const __grid_constant__ CUtensorMap x_map, Bf16Product p,
                  Shape shape) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) char shared[];
  __shared__ __align__(8) uint64_t barriers[2 * kMaxStages];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, stages = shape.stages;
  const uint32_t base = shared_address(shared), w_bytes = shape.rows * 128, x_bytes = kTokens * 128,
                 stage_bytes = kBlocks * (w_bytes + x_bytes);
  const uint32_t full = shared_address(barriers), empty = full + 8 * kMaxStages;
  if (threadIdx.x == 0) {
    for (int i = 0; i < stages; i++) {
      barrier_init(full + 8 * i, 1);
      barrier_init(empty + 8 * i, 1);
    }
    barrier_init_done();
  }
  __syncthreads();
  allow_next_kernel();  // as early as possible: the next kernel's blocks may take free shared memory and fill their
                        // rings
  const int split = shape.split, rank = split > 1 ? blockIdx.x % split : 0,
            groups = (p.k + 64 * kBlocks - 1) / (64 * kBlocks);
  const int first_group = groups * rank / split, num_groups = groups * (rank + 1) / split - first_group;
  const int step = gridDim.x / split, first_tile = blockIdx.x / split;
  // blocks start at different k, so that they do not all ask for the same tokens' lines at once
  const int turn = p.one_order ? 0 : int(int64_t(first_tile) * num_groups / step),
            total = first_tile < shape.tiles ? ((shape.tiles - 1 - first_tile) / step + 1) * num_groups : 0;
  auto first_k = [&](int i) { return (first_group + (i % num_groups + turn) % num_groups) * kBlocks * 64; };

  if (warp == 4) {
    if (lane == 0) {
      const uint64_t weights = policy_evict_first(), tokens = policy_evict_last();
      prefetch_map(&w_map);
      prefetch_map(&x_map);
      auto load_weights = [&](int i, int slot) {
        const int k = first_k(i);
        barrier_expect(full + 8 * slot, stage_bytes);
        for (int b = 0; b < kBlocks; b++)
          copy_box(base + slot * stage_bytes + b * w_bytes, &w_map, k + b * 64,
                   (first_tile + i / num_groups * step) * shape.rows, full + 8 * slot, weights);
      };
      auto load_tokens = [&](int i, int slot) {
        const int k = first_k(i);
        for (int b = 0; b < kBlocks; b++)
          copy_box(base + slot * stage_bytes + kBlocks * w_bytes + b * x_bytes, &x_map, k + b * 64, 0, full + 8 * slot,
                   tokens);
      };
      const int ahead = min(stages, total);
      for (int i = 0; i < ahead; i++) load_weights(i, i);  // these do not depend on the kernels before
      wait_for_earlier_kernels();
      for (int i = 0; i < ahead; i++) load_tokens(i, i);
      for (int i = ahead, slot = 0, phase = 0; i < total; i++) {
        barrier_wait(empty + 8 * slot, phase);
        load_weights(i, slot);
        load_tokens(i, slot);
        if (++slot == stages) slot = 0, phase ^= 1;
      }
    }
    __syncwarp();
  } else {
    wait_for_earlier_kernels();
    const int g = lane / 4, t = lane % 4;
    for (int tile = first_tile, slot = 0, phase = 0; tile < shape.tiles; tile += step) {
      float sums[kTiles][kTokens / 2] = {};
      int before = -1;
      for (int i = 0; i < num_groups; i++) {
        barrier_wait(full + 8 * slot, phase);
        const uint32_t w = base + slot * stage_bytes, x = w + kBlocks * w_bytes;
#pragma unroll
        for (int m = 0; m < kTiles; m++)
#pragma unroll
          for (int j = 0; j < kTokens / 2; j++) asm volatile("" : "+f"(sums[m][j])::"memory");
        wgmma_fence();
#pragma unroll
        for (int b = 0; b < kBlocks; b++)
#pragma unroll
          for (int kk = 0; kk < 4; kk++)
#pragma unroll
            for (int m = 0; m < kTiles; m++)
              wgmma<kTokens, kHalves>(sums[m], wgmma_tile(w + b * w_bytes + m * 8192 + kk * 32),
                                      wgmma_tile(x + b * x_bytes + kk * 32));
        wgmma_commit();
        wgmma_wait<1>();  // the stage before this one has been read
        if (before >= 0 && threadIdx.x == 0) barrier_arrive(empty + 8 * before);
        before = slot;
        if (++slot == stages) slot = 0, phase ^= 1;
      }
      wgmma_wait<0>();
      if (threadIdx.x == 0 && before >= 0) barrier_arrive(empty + 8 * before);
      if (split > 1) {
        // every stage has landed and been read: the ring's memory holds the sums [kTokens][kTiles * 64 + 4]
        float* sheet = reinterpret_cast<float*>(shared);
        sync_consumers();
#pragma unroll
        for (int m = 0; m < kTiles; m++)
#pragma unroll
          for (int j = 0; j < kTokens / 2; j++)
            sheet[(j / 4 * 8 + 2 * t + j % 2) * (kTiles * 64 + 4) + m * 64 + warp * 16 + g + j % 4 / 2 * 8] =
                sums[m][j];
        continue;
      }
      float* sheet = reinterpret_cast<float*>(shared + stages * stage_bytes);  // [kTokens][68]
#pragma unroll
      for (int m = 0; m < kTiles; m++) {
        sync_consumers();
#pragma unroll
        for (int j = 0; j < kTokens / 2; j++)
          sheet[(j / 4 * 8 + 2 * t + j % 2) * 68 + warp * 16 + g + j % 4 / 2 * 8] = sums[m][j];
        sync_consumers();
        for (int i = threadIdx.x; i < p.tokens * 16; i += 128) {
          const int token = i / 16, row = i % 16 * 4;
          if (m * 64 + row < shape.rows)
            store_results(p, *reinterpret_cast<float(*)[4]>(sheet + token * 68 + row), token,
                          tile * shape.rows + m * 64 + row);
        }
      }
    }
  }
  if (split == 1) return;
  cluster_sync();  // all sheets are written
  if (warp < 4) {
    const int mine = shape.rows / split / 4;  // quads of rows that this block finishes
    for (int i = threadIdx.x; i < p.tokens * mine; i += 128) {
      const int token = i / mine, row = (rank * mine + i % mine) * 4;
      float4 s = make_float4(0, 0, 0, 0);
      for (int r = 0; r < split; r++) {
        const float4 v = load_cluster(base + (token * (kTiles * 64 + 4) + row) * 4, r);
        s.x += v.x, s.y += v.y, s.z += v.z, s.w += v.w;
      }
      store_results(p, {s.x, s.y, s.z, s.w}, token, first_tile * shape.rows + row);
    }
  }
  cluster_sync();  // nobody leaves while its sheet is read
#endif
}

int round_up(int64_t a, int b) { return divide_up(a, b) * b; }

template <int kTokens, int kTiles, int kBlocks, bool kHalves>
bool run(ix_stream* stream, const Gpu& gpu, const Bf16Product& p, Shape shape, int per_sm) {
  shape.tiles = divide_up(p.n, shape.rows);
  // a small matrix with few tokens: its blocks fit beside those of attention, and fill their rings meanwhile
  const bool beside = shape.split > 1 && int64_t(shape.rows) * p.k <= 64 * 4096 && kTokens <= 16;
  const int budget = (per_sm == 2 || beside ? 110 : 220) * 1024, stage_bytes = kBlocks * (shape.rows + kTokens) * 128;
  // beside the ring: the sheet of sums, and what the last 64-row product reads past its rows
  const int sheet = shape.split == 1 ? kTokens * 68 * 4 : 0,
            slack = kTiles * 8192 > shape.rows * 128 ? kTiles * 8192 - shape.rows * 128 : 0;
  shape.stages = (budget - sheet - slack) / stage_bytes;
  if (shape.stages > kMaxStages) shape.stages = kMaxStages;
  int shared = shape.stages * stage_bytes;
  if (shape.split > 1 && shared < kTokens * (kTiles * 64 + 4) * 4) shared = kTokens * (kTiles * 64 + 4) * 4;
  CUtensorMap w_map, x_map;
  if (!make_tensor_map(&w_map, p.w, p.w_stride, p.n, p.w_stride, shape.rows)) return false;
  if (!make_tensor_map(&x_map, p.x, p.k, p.tokens, p.x_stride, kTokens)) return false;
  const int grid = shape.split > 1                  ? shape.tiles * shape.split
                   : shape.tiles < per_sm * gpu.sms ? shape.tiles
                                                    : per_sm * gpu.sms;
  launch_kernel<stream_kernel<kTokens, kTiles, kBlocks, kHalves>>(stream, gpu, grid, 160, shared + sheet + slack,
                                                                  shape.split, w_map, x_map, p, shape);
  return true;
}

template <int kTokens, bool kHalves>
bool with_shape(ix_stream* stream, const Gpu& gpu, const Bf16Product& product) {
  const int n = product.n, rows = round_up(divide_up(n, gpu.sms), 8);
  if (rows > 128) {  // two blocks an SM, of the height that leaves the busiest one least to do
    int best = 128, least = 0;
    for (int height = 128; height >= 64; height -= 8) {
      const int cost = divide_up(divide_up(n, height), 2 * gpu.sms) * (height + 8);
      if (!least || cost < least) best = height, least = cost;
    }
    return run<kTokens, 2, 1, kHalves>(stream, gpu, product, {best, 1, 0, 0}, 2);
  }
  if (rows > 64) return run<kTokens, 2, 1, kHalves>(stream, gpu, product, {rows, 1, 0, 0}, 1);
  if (rows > 32 || product.k < 512 || product.one_order)
    return run<kTokens, 1, 2, kHalves>(stream, gpu, product, {rows, 1, 0, 0}, 1);
  const int shared_rows = round_up(divide_up(n, gpu.sms / 2), 8);
  return run<kTokens, 1, 2, kHalves>(stream, gpu, product, {shared_rows > 16 ? shared_rows : 16, 2, 0, 0}, 1);
}

template <bool kHalves>
bool with_tokens(ix_stream* stream, const Gpu& gpu, const Bf16Product& product) {
  if (product.tokens <= 8) return with_shape<8, kHalves>(stream, gpu, product);
  if (product.tokens <= 16) return with_shape<16, kHalves>(stream, gpu, product);
  if (product.tokens <= 32) return with_shape<32, kHalves>(stream, gpu, product);
  return with_shape<64, kHalves>(stream, gpu, product);
}
}  // namespace

namespace ix::cuda {

bool stream_weights(ix_stream* stream, const Gpu& gpu, const Bf16Product& product) {
  if (gpu.capability != 90) return false;
  return product.halves ? with_tokens<true>(stream, gpu, product) : with_tokens<false>(stream, gpu, product);
}

}  // namespace ix::cuda
