// Many tokens without cuBLASLt: 128 tokens x 128 rows a block, 64 k a stage through cp.async, mma.sync with k permuted
// as in ring_bf16.cu. Portable, not the fastest.
#include "cuda/linear/bf16.h"
#include "cuda/ptx/async.cuh"
#include "cuda/ptx/mma.cuh"

namespace {
using namespace ix::cuda;

constexpr int kTile = 128, kStages = 3, kHalf = kTile * 128;  // bytes of one operand's stage: 128 lines of 64 k

// 8 warps as 4 x 2: 32 tokens x 64 rows each; tokens are the M side
template <bool kHalves>
__global__ void __launch_bounds__(256) tiled_kernel(Bf16Product p, int token_tiles) {
  extern __shared__ __align__(128) char shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  // neighbouring blocks share rows of weights: tokens are the fast side
  const int first_token = blockIdx.x % token_tiles * kTile, first_row = blockIdx.x / token_tiles * kTile,
            steps = int(p.w_stride / 64);
  const int padded_rows = (p.n + kPanel - 1) / kPanel * kPanel;
  const uint32_t base = shared_address(shared);
  const uint64_t policy = policy_evict_last();
  wait_for_earlier_kernels();
  allow_next_kernel();
  auto issue = [&](int step) {
    if (step < steps) {
      const uint32_t to = base + step % kStages * 2 * kHalf;
#pragma unroll
      for (int i = 0; i < kTile / 32; i++) {
        const int line = i * 32 + threadIdx.x / 8, chunk = threadIdx.x % 8,
                  place = line * 128 + (chunk ^ (line & 1) << 2) * 16;
        const bool token = first_token + line < p.tokens, row = first_row + line < padded_rows;
        copy_async(to + place, p.x + (token ? first_token + line : 0) * p.x_stride + step * 64 + chunk * 8,
                   token ? 16 : 0, policy);
        copy_async(to + kHalf + place, p.w + (row ? first_row + line : 0) * p.w_stride + step * 64 + chunk * 8,
                   row ? 16 : 0, policy);
      }
    }
    copy_async_commit();
  };
  for (int s = 0; s < kStages - 1; s++) issue(s);
  float sums[2][8][4] = {};
  const int token0 = warp / 2 * 32, row0 = warp % 2 * 64;
  for (int step = 0; step < steps; step++) {
    copy_async_wait<kStages - 2>();
    __syncthreads();
    issue(step + kStages - 1);
    const uint32_t from = base + step % kStages * 2 * kHalf;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const uint32_t column = ((4 * h + t) ^ (g & 1) << 2) * 16;
      uint4 x[2][2];
#pragma unroll
      for (int m = 0; m < 4; m++) x[m / 2][m % 2] = load_shared(from + (token0 + m * 8 + g) * 128 + column);
#pragma unroll
      for (int j = 0; j < 8; j++) {
        const uint4 w = load_shared(from + kHalf + (row0 + j * 8 + g) * 128 + column);
#pragma unroll
        for (int m = 0; m < 2; m++) {
          mma<kHalves>(sums[m][j], x[m][0].x, x[m][1].x, x[m][0].y, x[m][1].y, w.x, w.y);
          mma<kHalves>(sums[m][j], x[m][0].z, x[m][1].z, x[m][0].w, x[m][1].w, w.z, w.w);
        }
      }
    }
  }
#pragma unroll
  for (int m = 0; m < 2; m++)
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int token = first_token + token0 + m * 16 + g + e / 2 * 8, row = first_row + row0 + j * 8 + 2 * t + e % 2;
        if (token < p.tokens) store_results(p, {sums[m][j][e]}, token, row);
      }
}
}  // namespace

namespace ix::cuda {

void tiled_product(ix_stream* stream, const Gpu& gpu, const Bf16Product& product) {
  const int token_tiles = divide_up(product.tokens, kTile), blocks = token_tiles * divide_up(product.n, kTile);
  const size_t shared = kStages * 2 * kHalf;
  if (product.halves)
    launch_kernel<tiled_kernel<true>>(stream, gpu, blocks, 256, shared, 1, product, token_tiles);
  else
    launch_kernel<tiled_kernel<false>>(stream, gpu, blocks, 256, shared, 1, product, token_tiles);
}

}  // namespace ix::cuda
