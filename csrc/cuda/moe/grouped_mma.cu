// Grouped products on any GPU: 128 rows of weights x a chunk of tokens a block, 64 k a stage through cp.async, mma.sync
// with k permuted: a lane's 16 bytes are the k slots of two products, for weights and tokens alike.
#include "cuda/moe/group.cuh"
#include "cuda/ptx/mma.cuh"

namespace {
using namespace ix::cuda;

constexpr int kRows = 128, kStages = 3, kLine = 128;  // bytes of a row's 64 k

// 8 warps as 4 x 2: 32 rows x half of the chunk each; rows are the M side
template <int kTokens>
__global__ void __launch_bounds__(256) grouped_kernel(const __grid_constant__ GroupedProduct g, int row_tiles) {
  extern __shared__ __align__(128) char shared[];
  constexpr int kStageBytes = (kRows + kTokens) * kLine, kEights = kTokens / 16,
                kPlaces = (kTokens + 31) / 32;  // of a thread: lines of tokens that it copies
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, quad = lane / 4, t = lane % 4;
  const uint32_t base = shared_address(shared);
  allow_next_kernel();
  wait_for_earlier_kernels();
  if (int(blockIdx.x) >= __ldcg(g.totals) * row_tiles) return;
  const uint4 raw = load_past_l1(static_cast<const void*>(g.chunks + blockIdx.x / row_tiles));
  const Tile tile = tile_of(blockIdx.x, {int(raw.x), int(raw.y), int(raw.z), int(raw.w)}, kTokens, kRows, row_tiles);
  const int steps = int(g.w_stride / 64), line = threadIdx.x / 8, column = threadIdx.x % 8;
  const __nv_bfloat16* w = g.w + (tile.expert * g.expert_rows + tile.row) * g.w_stride + column * 8;
  const __nv_bfloat16* x = g.sorted + tile.first * g.w_stride + column * 8;
  auto issue = [&](int step) {
    if (step < steps) {
      const uint32_t to = base + step % kStages * kStageBytes, place = line * kLine + (column ^ (line & 1) << 2) * 16;
#pragma unroll
      for (int i = 0; i < kRows / 32; i++) {
        const bool inside = tile.row + i * 32 + line < g.expert_rows;
        copy_async(to + i * 32 * kLine + place, w + (inside ? i * 32 + line : 0) * g.w_stride + step * 64,
                   inside ? 16 : 0);
      }
#pragma unroll
      for (int i = 0; i < kPlaces; i++)  // sums of places beyond the chunk are dropped
        if (i * 32 + line < tile.count)
          copy_async(to + (kRows + i * 32) * kLine + place, x + (i * 32 + line) * g.w_stride + step * 64, 16);
    }
    copy_async_commit();
  };
  for (int s = 0; s < kStages - 1; s++) issue(s);
  float sums[2][kEights][4] = {};
  const int row0 = warp / 2 * 32, place0 = warp % 2 * (kTokens / 2);
  for (int step = 0; step < steps; step++) {
    copy_async_wait<kStages - 2>();
    __syncthreads();
    issue(step + kStages - 1);
    const uint32_t from = base + step % kStages * kStageBytes;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const uint32_t at = ((4 * h + t) ^ (quad & 1) << 2) * 16;
      uint4 a[2][2];
#pragma unroll
      for (int m = 0; m < 4; m++) a[m / 2][m % 2] = load_shared(from + (row0 + m * 8 + quad) * kLine + at);
#pragma unroll
      for (int j = 0; j < kEights; j++) {
        if (place0 + j * 8 >= tile.count) break;
        const uint4 b = load_shared(from + (kRows + place0 + j * 8 + quad) * kLine + at);
#pragma unroll
        for (int m = 0; m < 2; m++) {
          mma(sums[m][j], a[m][0].x, a[m][1].x, a[m][0].y, a[m][1].y, b.x, b.y);
          mma(sums[m][j], a[m][0].z, a[m][1].z, a[m][0].w, a[m][1].w, b.z, b.w);
        }
      }
    }
  }
  int pairs[kEights][2];  // loads first: none may pass a store
#pragma unroll
  for (int j = 0; j < kEights; j++)
#pragma unroll
    for (int c = 0; c < 2; c++)
      pairs[j][c] = __ldcg(g.order + tile.first + min(place0 + j * 8 + 2 * t + c, tile.count - 1));
#pragma unroll
  for (int j = 0; j < kEights; j++)
#pragma unroll
    for (int c = 0; c < 2; c++) {
      if (place0 + j * 8 + 2 * t + c >= tile.count) continue;
      const int64_t y = g.output(pairs[j][c]);
#pragma unroll
      for (int r = 0; r < 4; r++) {
        const int row = tile.row + row0 + r * 8 + quad;
        if (row < g.n) g.store_output(y + row, sums[r / 2][j][r % 2 * 2 + c]);
      }
    }
}

template <int kTokens>
void run(ix_stream* stream, const Gpu& gpu, const GroupedProduct& g) {
  sort_pairs(stream, gpu, g, kTokens);
  const int row_tiles = divide_up(g.n, kRows);
  launch_kernel<grouped_kernel<kTokens>>(stream, gpu, most_chunks(g, kTokens) * row_tiles, 256,
                                         kStages * (kRows + kTokens) * kLine, 1, g, row_tiles);
}
}  // namespace

namespace ix::cuda {

void grouped_mma(ix_stream* stream, const Gpu& gpu, const GroupedProduct& g, int chunk_tokens) {
  if (chunk_tokens == 16)
    run<16>(stream, gpu, g);
  else
    run<128>(stream, gpu, g);
}

}  // namespace ix::cuda
