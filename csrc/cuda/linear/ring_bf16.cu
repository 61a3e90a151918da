// Few tokens on any GPU: each warp owns every 8th block of 64 k of a 16-row tile and a private ring of whole 128-byte
// lines, so that the loop needs no block barrier. mma.sync with k permuted: a lane's 16 bytes are the k slots of two
// products, for weights and tokens alike.
#include "cuda/linear/bf16.h"
#include "cuda/ptx/async.cuh"
#include "cuda/ptx/mma.cuh"

namespace {
using namespace ix::cuda;

constexpr int kWarps = 8, kDepth = 4, kRows = 16, kSlot = kRows * 128;  // bytes of a stage of a warp
constexpr int kPitch = kRows + 4;  // of a token's sums: the stores of a warp fall into 32 banks

template <int kEights, bool kHalves>  // tokens / 8
__global__ void __launch_bounds__(kWarps * 32) ring_kernel(Bf16Product p, int tiles) {
  extern __shared__ __align__(128) char shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint32_t ring = shared_address(shared) + warp * kDepth * kSlot;
  float* sheets = reinterpret_cast<float*>(shared + kWarps * kDepth * kSlot);  // [2][kWarps][tokens][kPitch]
  constexpr int kSheet = kEights * 8 * kPitch;
  const int steps = (int(p.w_stride) / 64 - warp + kWarps - 1) / kWarps;
  const uint64_t policy = policy_evict_first();
  int next_tile = blockIdx.x, next_step = 0;  // the copies run kDepth steps ahead, straight across tiles
  auto issue = [&](int slot) {
    if (next_tile < tiles) {
#pragma unroll
      for (int r = 0; r < kRows / 4; r++) {
        const int row = r * 4 + lane / 8,
                  chunk = lane % 8;  // the last panel of weights is whole: rows past n are zeros
        copy_async(ring + slot * kSlot + row * 128 + (chunk ^ (row & 1) << 2) * 16,
                   p.w + (next_tile * kRows + row) * p.w_stride + (warp + next_step * kWarps) * 64 + chunk * 8, 16,
                   policy);
      }
      if (++next_step == steps) next_step = 0, next_tile += gridDim.x;
    }
    copy_async_commit();
  };
  if (steps > 0)
    for (int d = 0; d < kDepth; d++) issue(d);
  allow_next_kernel();
  wait_for_earlier_kernels();
  for (int tile = blockIdx.x, slot = 0, sheet = 0; tile < tiles; tile += gridDim.x, sheet ^= 1) {
    float sums[kEights][4] = {};
    for (int s = 0; s < steps; s++) {
      uint4 x[kEights][2], w[2][2];
#pragma unroll
      for (int j = 0; j < kEights; j++) {
        const __nv_bfloat16* from = p.x + min(j * 8 + g, p.tokens - 1) * p.x_stride + (warp + s * kWarps) * 64 + t * 8;
        x[j][0] = load_past_l1(static_cast<const void*>(from)),
        x[j][1] = load_past_l1(static_cast<const void*>(from + 32));
      }
      copy_async_wait<kDepth - 1>();
      __syncwarp();
#pragma unroll
      for (int r = 0; r < 2; r++)
#pragma unroll
        for (int h = 0; h < 2; h++)
          w[r][h] = load_shared(ring + slot * kSlot + (r * 8 + g) * 128 + ((4 * h + t) ^ (g & 1) << 2) * 16);
#pragma unroll
      for (int h = 0; h < 2; h++)
#pragma unroll
        for (int j = 0; j < kEights; j++) {
          mma<kHalves>(sums[j], w[0][h].x, w[1][h].x, w[0][h].y, w[1][h].y, x[j][h].x, x[j][h].y);
          mma<kHalves>(sums[j], w[0][h].z, w[1][h].z, w[0][h].w, w[1][h].w, x[j][h].z, x[j][h].w);
        }
      __syncwarp();
      issue(slot);
      slot = (slot + 1) % kDepth;
    }
    float* mine = sheets + (sheet * kWarps + warp) * kSheet;
#pragma unroll
    for (int j = 0; j < kEights; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) mine[(j * 8 + 2 * t + e % 2) * kPitch + g + e / 2 * 8] = sums[j][e];
    __syncthreads();  // two sheets: one barrier a tile is enough
    for (int i = threadIdx.x; i < p.tokens * kRows; i += kWarps * 32) {
      const int token = i / kRows, row = tile * kRows + i % kRows;
      float sum = 0;
#pragma unroll
      for (int other = 0; other < kWarps; other++)
        sum += sheets[(sheet * kWarps + other) * kSheet + token * kPitch + i % kRows];
      store_results(p, {sum}, token, row);
    }
  }
}

template <int kEights, bool kHalves>
void run(ix_stream* stream, const Gpu& gpu, const Bf16Product& product) {
  const int tiles = divide_up(product.n, kRows),
            most = gpu.sms * (gpu.capability == 80 || gpu.capability >= 90 ? 2 : 1);
  launch_kernel<ring_kernel<kEights, kHalves>>(stream, gpu, tiles < most ? tiles : most, kWarps * 32,
                                               kWarps * kDepth * kSlot + 2 * kWarps * kEights * 8 * kPitch * 4, 1,
                                               product, tiles);
}
}  // namespace

namespace ix::cuda {

void stream_weights_ring(ix_stream* stream, const Gpu& gpu, const Bf16Product& product) {
  const bool few = product.tokens <= 8;
  if (product.halves) return few ? run<1, true>(stream, gpu, product) : run<2, true>(stream, gpu, product);
  return few ? run<1, false>(stream, gpu, product) : run<2, false>(stream, gpu, product);
}

}  // namespace ix::cuda
