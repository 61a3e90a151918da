// linear over `row_bf16` with activations rounded to bf16, sums in f32: weights are streamed once for each 64 tokens, on tensor cores.
// A warp's share of K (blocks of 64, taken in turn) goes through a ring of its own in shared memory, so that the loop has no barrier.
// The order of the sums does not depend on the number of tokens. Not here: large tiles that reuse weights for long prompts.
#include "cuda/linear/mma.h"
#include "cuda/linear/rows.h"

namespace {
using namespace ix::cuda;

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr size_t kMaxShared = 227 * 1024;

struct Stream {
  const __nv_bfloat16* x;  // [tokens][k], k padded to whole blocks of 64 with zeros
  const __nv_bfloat16* w;  // [rows][k]
  float* y;
  int64_t y_stride;
  const float* bias;
  int tokens, n, k, tiles;
};

// kRows tiles of 16 rows, kTokens tiles of 8 tokens.
template <int kRows, int kTokens>
struct Shape {
  static constexpr int kDepth = 6 / kRows, kPieces = kRows * 4;  // 16-byte pieces of a lane in a step of 64 k
  static constexpr int kSumStride = kRows * 16 + 4;              // + 4: the stores of a warp fall into 32 different banks
  static constexpr int kSums = kWarps * kTokens * 8 * kSumStride, kBuffers = kTokens == 8 ? 1 : 2;
  static constexpr size_t kRing = size_t(kWarps) * kDepth * kPieces * 512, kShared = kRing + size_t(kBuffers) * kSums * 4;
  static size_t x_bytes(int tokens, int k) { return size_t(tokens) * (size_t(k) * 2 + 64); }  // + 64: two tokens' reads hit all banks
};

template <int kRows, int kTokens, bool kShareX>
__global__ void __launch_bounds__(kThreads) stream_kernel(Stream p) {
  using S = Shape<kRows, kTokens>;
  extern __shared__ __align__(128) char memory[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int first_token = blockIdx.y * kTokens * 8, tokens = min(kTokens * 8, p.tokens - first_token);
  const __nv_bfloat16* x_rows = p.x + int64_t(first_token) * p.k;
  const uint32_t ring = shared_address(memory) + warp * S::kDepth * S::kPieces * 512;
  float* const sums = reinterpret_cast<float*>(memory + S::kRing);
  char* const shared_x = memory + S::kShared;
  const int steps = (p.k / 64 - warp + kWarps - 1) / kWarps;

  // the copies run kDepth steps ahead, across the borders of tiles
  int next_tile = blockIdx.x, next_step = 0;
  const auto issue = [&](int slot) {
    if (next_tile < p.tiles && steps > 0) {
#pragma unroll
      for (int r = 0; r < kRows * 4; r++) {
        const int row = r * 4 + lane / 8, chunk = lane % 8;
        const __nv_bfloat16* from = p.w + int64_t(min(next_tile * kRows * 16 + row, p.n - 1)) * p.k + (warp + next_step * kWarps) * 64 + chunk * 8;
        copy_async(ring + slot * S::kPieces * 512 + row * 128 + (chunk ^ (row & 1) << 2) * 16, from);
      }
      if (++next_step == steps) next_step = 0, next_tile += gridDim.x;
    }
    commit_copies();
  };
#pragma unroll
  for (int d = 0; d < S::kDepth; d++) issue(d);

  if (kShareX) {
    const int per_row = p.k / 8;
    for (int i = threadIdx.x; i < tokens * per_row; i += kThreads)
      *reinterpret_cast<uint4*>(shared_x + int64_t(i / per_row) * (p.k * 2 + 64) + i % per_row * 16) = *reinterpret_cast<const uint4*>(x_rows + int64_t(i) * 8);
    __syncthreads();
  }
  const auto load_x = [&](uint4 (&x)[kTokens][2], int step) {
#pragma unroll
    for (int j = 0; j < kTokens; j++) {
      const int token = min(j * 8 + g, tokens - 1), k = (warp + step * kWarps) * 64 + t * 8;
      const char* from = kShareX ? shared_x + int64_t(token) * (p.k * 2 + 64) + k * 2 : reinterpret_cast<const char*>(x_rows + int64_t(token) * p.k + k);
      x[j][0] = *reinterpret_cast<const uint4*>(from);
      x[j][1] = *reinterpret_cast<const uint4*>(from + 64);
    }
  };
  uint4 ahead[kTokens][2];
  if (!kShareX && steps > 0) load_x(ahead, 0);

  int slot = 0, buffer = 0;
  for (int tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
    float sum[kRows][kTokens][4] = {};
    for (int step = 0; step < steps; step++) {
      uint4 x[kTokens][2], w[kRows * 2][2];
      if (kShareX) {
        load_x(x, step);
      } else {
#pragma unroll
        for (int j = 0; j < kTokens; j++) x[j][0] = ahead[j][0], x[j][1] = ahead[j][1];
        load_x(ahead, step + 1 < steps ? step + 1 : 0);
      }
      wait_copies<S::kDepth - 1>();
      __syncwarp();
#pragma unroll
      for (int r = 0; r < kRows * 2; r++)
#pragma unroll
        for (int h = 0; h < 2; h++) w[r][h] = load_shared(ring + slot * S::kPieces * 512 + (r * 8 + g) * 128 + ((4 * h + t) ^ (g & 1) << 2) * 16);
      // any order of k is right if both sides agree: elements 0-3 of 16 bytes are one product's, 4-7 the next one's
#pragma unroll
      for (int h = 0; h < 2; h++)
#pragma unroll
        for (int i = 0; i < kRows; i++)
#pragma unroll
          for (int j = 0; j < kTokens; j++) {
            multiply(sum[i][j], w[2 * i][h].x, w[2 * i + 1][h].x, w[2 * i][h].y, w[2 * i + 1][h].y, x[j][h].x, x[j][h].y);
            multiply(sum[i][j], w[2 * i][h].z, w[2 * i + 1][h].z, w[2 * i][h].w, w[2 * i + 1][h].w, x[j][h].z, x[j][h].w);
          }
      __syncwarp();
      issue(slot);
      slot = slot + 1 == S::kDepth ? 0 : slot + 1;
    }
    float* const parts = sums + buffer * S::kSums;
#pragma unroll
    for (int i = 0; i < kRows; i++)
#pragma unroll
      for (int j = 0; j < kTokens; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) parts[(warp * kTokens * 8 + j * 8 + 2 * t + e % 2) * S::kSumStride + i * 16 + g + e / 2 * 8] = sum[i][j][e];
    __syncthreads();
    for (int i = threadIdx.x; i < tokens * kRows * 16; i += kThreads) {
      const int token = i / (kRows * 16), r = i % (kRows * 16), row = tile * kRows * 16 + r;
      if (row >= p.n) continue;
      float total = p.bias ? p.bias[row] : 0.0f;
#pragma unroll
      for (int w = 0; w < kWarps; w++) total += parts[(w * kTokens * 8 + token) * S::kSumStride + r];
      p.y[(first_token + token) * p.y_stride + row] = total;
    }
    if (S::kBuffers == 1) __syncthreads();
    else buffer ^= 1;  // with two buffers one barrier a tile is enough
  }
}

template <int kRows, int kTokens, bool kShareX>
void run(ix_stream* stream, Stream p, int chunks) {
  using S = Shape<kRows, kTokens>;
  const size_t shared = S::kShared + (kShareX ? S::x_bytes(min(p.tokens, kTokens * 8), p.k) : 0);
  cudaFuncSetAttribute(stream_kernel<kRows, kTokens, kShareX>, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared));
  p.tiles = divide_up(p.n, kRows * 16);
  stream_kernel<kRows, kTokens, kShareX><<<dim3(min(p.tiles, stream->multiprocessors), chunks), kThreads, shared, stream->handle>>>(p);
}

// The number of rows that fills the multiprocessors best.
int best_rows(int n, int most, int multiprocessors) {
  int best = 1;
  float least = INFINITY;
  for (int rows = most; rows >= 1; rows--) {
    const float time = float(divide_up(divide_up(n, rows * 16), multiprocessors)) * float(rows);
    if (time < least) least = time, best = rows;
  }
  return best;
}

template <int kTokens>
void with_tokens(ix_stream* stream, const Stream& p) {
  const int chunks = divide_up(p.tokens, kTokens * 8), rows = best_rows(p.n, kTokens == 8 ? 2 : 3, stream->multiprocessors);
  if constexpr (kTokens <= 2) {
    if (Shape<3, kTokens>::kShared + Shape<3, kTokens>::x_bytes(min(p.tokens, kTokens * 8), p.k) <= kMaxShared) {
      if (rows == 1) return run<1, kTokens, true>(stream, p, chunks);
      if (rows == 2) return run<2, kTokens, true>(stream, p, chunks);
      return run<3, kTokens, true>(stream, p, chunks);
    }
  }
  if (rows == 1) return run<1, kTokens, false>(stream, p, chunks);
  if (rows == 2) return run<2, kTokens, false>(stream, p, chunks);
  if constexpr (kTokens < 8) run<3, kTokens, false>(stream, p, chunks);
}

int64_t padded(int64_t k) { return (k + 63) / 64 * 64; }

void launch(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor &x = call->operands[0], &w = call->operands[1], &y = call->operands[3];
  if (x.dims[0] <= 0) return;
  const int columns = w.dims[1], stride = int(padded(columns));
  __nv_bfloat16* rounded = static_cast<__nv_bfloat16*>(call->workspace);
  const Floats from(x);
  for_elements(stream, x.dims[0], stride, [=] __device__(int r, int c) { rounded[int64_t(r) * stride + c] = __float2bfloat16_rn(c < columns ? from[r][c] : 0.0f); });
  const Stream p{rounded, static_cast<const __nv_bfloat16*>(w.data), static_cast<float*>(y.data), y.stride, static_cast<const float*>(call->operands[2].data), x.dims[0], w.dims[0], stride, 0};
  if (p.tokens <= 8) return with_tokens<1>(stream, p);
  if (p.tokens <= 16) return with_tokens<2>(stream, p);
  if (p.tokens <= 32) return with_tokens<4>(stream, p);
  with_tokens<8>(stream, p);
}

size_t workspace(const ix_kernel_call* call, int) { return size_t(call->operands[0].dims[0]) * size_t(padded(call->operands[1].dims[1])) * 2; }
}  // namespace

IX_KERNEL(linear_bf16_stream, "linear(x: f32[T,K], w: row_bf16[N,K], bias?: f32[N]) -> f32[T,N]", "numerics=bf16", launch, workspace)
