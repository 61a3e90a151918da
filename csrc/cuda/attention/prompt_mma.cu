// Prompt attention with mma.sync, for sm_80 on: four warps, each of 16 or 32 rows with a running maximum, sum and
// output in registers; Q, one tile of 64 keys and one of values in shared memory. The copy of the values runs beside Q
// K^T, that of the next keys beside the softmax and P V, and two blocks share a multiprocessor where they fit.
#include "cuda/attention/prompt.h"
#include "cuda/ptx/async.cuh"
#include "cuda/ptx/mma.cuh"

namespace {
using namespace ix::cuda;

constexpr int kWarps = 4, kKeys = 64, kPage = 16;  // positions of a tile; of a piece that lies in one block

// kWidth: the head width, or the next larger one, whose further columns are zeros.
template <int kWidth>
struct Tile {
  static constexpr int kSixteens = kWidth > 128 ? 1 : 2, kRows = kWarps * 16 * kSixteens;  // rows of a warp / 16
  static constexpr int kPieces = kWidth / 8;                                               // of 16 bytes in a line
  // Whole lines are swizzled, others padded, so that 8 lines' 16 bytes lie in different banks
  static constexpr bool kWhole = kPieces % 8 == 0;
  static constexpr int kPitch = kWhole ? kPieces : kPieces | 1;
  static constexpr int kBytes = kKeys * kPitch * 16, kShared = kRows * kPitch * 16 + 2 * kBytes;
  __device__ static uint32_t at(int line, int piece) {
    return (line * kPitch + (kWhole ? piece ^ (line & 7) : piece)) * 16;
  }
  // at() of `more` pieces (an even number) further in the line, and a multiple of 8 lines below
  __device__ static uint32_t ahead(uint32_t place, int more, int lines) {
    return (kWhole ? (place ^ more % 8 * 16) + more / 8 * 128 : place + more * 16) + lines * kPitch * 16;
  }
};

template <int kWidth, class Out>
__global__ void __launch_bounds__(kWarps * 32, 2) mma_kernel(Prompt<Out> p, KvCache<__nv_bfloat16> cache) {
  using T = Tile<kWidth>;
  constexpr int kSixteens = T::kSixteens, kThreads = kWarps * 32;
  extern __shared__ __align__(128) char shared[];
  __shared__ const __nv_bfloat16* origins[2][kKeys / kPage];  // of 16 positions, where K of the tile's first would lie
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const uint32_t queries = shared_address(shared), keys = queries + T::kRows * T::kPitch * 16,
                 values = keys + T::kBytes;
  const int kv_head = blockIdx.x % cache.heads;
  allow_next_kernel();
  PromptTile tile;
  if (!find_tile(p, blockIdx.x / cache.heads, T::kRows, tile) || tile.last < 0) return wait_for_earlier_kernels();
  const int begin = tile.first / kKeys, end = tile.last / kKeys + 1;
  const int32_t* blocks = p.table[p.seq_row[tile.sequence]];
  auto look_up = [&](int at) {
    if (threadIdx.x >= kKeys / kPage) return;
    const int position = at * kKeys + threadIdx.x * kPage;
    const int block = position <= tile.last && position + kPage > tile.first ? blocks[position / cache.tokens] : -1;
    const int line = position % cache.tokens - threadIdx.x * kPage;
    origins[at % 2][threadIdx.x] =
        block >= 0 && block < cache.blocks ? cache.k(block, kv_head) + int64_t(line) * cache.width : nullptr;
  };
  // Lines past the tile's last position become zeros: there may be anything.
  auto copy = [&](int at, uint32_t to, int64_t offset) {
    if (at < end) {
      const __nv_bfloat16* origin[kKeys / kPage];
#pragma unroll
      for (int i = 0; i < kKeys / kPage; i++) origin[i] = origins[at % 2][i];
#pragma unroll
      for (int r = 0; r < kKeys * T::kPieces / kThreads; r++) {
        const int i = r * kThreads + threadIdx.x, line = i / T::kPieces, piece = i % T::kPieces;
        const __nv_bfloat16* from = origin[0];
#pragma unroll
        for (int j = 1; j < kKeys / kPage; j++)
          if (line >= j * kPage) from = origin[j];
        const bool there = from && at * kKeys + line <= tile.last && piece * 8 < cache.width;
        copy_async(to + T::at(line, piece), there ? from + offset + (line * cache.width + piece * 8) : cache.k(0, 0),
                   there ? 16 : 0);
      }
    }
    copy_async_commit();
  };
  look_up(begin);
  __syncthreads();
  wait_for_earlier_kernels();
  copy(begin, keys, 0);
  const int first_row = warp * 16 * kSixteens;
#pragma unroll 8
  for (int i = lane; i < 16 * kSixteens * T::kPieces; i += 32) {  // a warp's own rows
    const int row = first_row + i / T::kPieces, piece = i % T::kPieces;
    const PromptRow r = find_row(p, tile, row);
    uint4 q = make_uint4(0, 0, 0, 0);
    if (piece * 8 < cache.width) {
      const float* from = p.q[r.token] + (kv_head * p.group + r.head) * cache.width + piece * 8;
      const float4 a = load_past_l1(from), b = load_past_l1(from + 4);
      q = make_uint4(pack_bf16(a.x, a.y), pack_bf16(a.z, a.w), pack_bf16(b.x, b.y), pack_bf16(b.z, b.w));
    }
    store_shared(queries + T::at(row, piece), q);
  }
  __syncwarp();

  const float to_log2 = (p.softcap > 0 ? 1.0f : p.scale) * kLog2e, cap_factor = 2 * kLog2e * p.scale / p.softcap;
  int last[kSixteens][2];
  float out[kSixteens][kWidth / 8][4] = {}, top[kSixteens][2], sum[kSixteens][2] = {};
#pragma unroll
  for (int m = 0; m < kSixteens; m++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const PromptRow r = find_row(p, tile, first_row + m * 16 + h * 8 + g);
      last[m][h] = r.last, top[m][h] = -INFINITY;
    }
  const int all_see = tile.old + tile.first_row / p.group,  // every row of the tile sees the positions up to here
      reach = p.window > 0 ? p.window - 1 : INT_MAX / 2;    // a row sees so many positions before its own
  const int matrix = lane / 8, line = lane % 8;
  const uint32_t my_queries = queries + T::at(first_row + matrix % 2 * 8 + line, matrix / 2),
                 my_keys = keys + T::at(matrix / 2 * 8 + line, matrix % 2),
                 my_values = values + T::at(matrix % 2 * 8 + line, matrix / 2);
  for (int at = begin; at < end; at++) {
    copy_async_wait<0>();
    __syncthreads();  // the keys are there, the values have been read
    copy(at, values, cache.half());
    look_up(at + 1);
    float s[kSixteens][kKeys / 8][4] = {};
#pragma unroll
    for (int k = 0; k < kWidth / 16; k++) {
      uint32_t q[kSixteens][4];
#pragma unroll
      for (int m = 0; m < kSixteens; m++) load_matrices(q[m], T::ahead(my_queries, k * 2, m * 16));
#pragma unroll
      for (int n = 0; n < kKeys / 16; n++) {
        uint32_t b[4];
        load_matrices(b, T::ahead(my_keys, k * 2, n * 16));
#pragma unroll
        for (int m = 0; m < kSixteens; m++) {
          mma(s[m][2 * n], q[m][0], q[m][1], q[m][2], q[m][3], b[0], b[1]);
          mma(s[m][2 * n + 1], q[m][0], q[m][1], q[m][2], q[m][3], b[2], b[3]);
        }
      }
    }
    copy_async_wait<0>();
    __syncthreads();  // the values are there, the keys have been read
    copy(at + 1, keys, 0);
    if (p.softcap > 0) {
#pragma unroll
      for (int m = 0; m < kSixteens; m++)
#pragma unroll
        for (int n = 0; n < kKeys / 8; n++)
#pragma unroll
          for (int e = 0; e < 4; e++) s[m][n][e] = cap_score(s[m][n][e], cap_factor, p.softcap);
    }
    if (at * kKeys + kKeys - 1 > all_see || at * kKeys < tile.last - reach) {
#pragma unroll
      for (int m = 0; m < kSixteens; m++)
#pragma unroll
        for (int n = 0; n < kKeys / 8; n++)
#pragma unroll
          for (int e = 0; e < 4; e++) {
            const int position = at * kKeys + n * 8 + 2 * t + e % 2;
            if (position > last[m][e / 2] || position < last[m][e / 2] - reach) s[m][n][e] = -INFINITY;
          }
    }
#pragma unroll
    for (int m = 0; m < kSixteens; m++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        float highest = -INFINITY, base;
#pragma unroll
        for (int n = 0; n < kKeys / 8; n++) highest = fmaxf(highest, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
        const float keep = raise_top(top[m][h], highest, to_log2, base);
        sum[m][h] *= keep;
#pragma unroll
        for (int n = 0; n < kKeys / 8; n++) {
          s[m][n][2 * h] = exp2_fast(fmaf(s[m][n][2 * h], to_log2, -base));
          s[m][n][2 * h + 1] = exp2_fast(fmaf(s[m][n][2 * h + 1], to_log2, -base));
          sum[m][h] += s[m][n][2 * h] + s[m][n][2 * h + 1];
        }
#pragma unroll
        for (int n = 0; n < kWidth / 8; n++) out[m][n][2 * h] *= keep, out[m][n][2 * h + 1] *= keep;
      }
#pragma unroll
    for (int k = 0; k < kKeys / 16; k++) {
      uint32_t a[kSixteens][4];
#pragma unroll
      for (int m = 0; m < kSixteens; m++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          a[m][e] = pack_bf16(s[m][2 * k + e / 2][e % 2 * 2], s[m][2 * k + e / 2][e % 2 * 2 + 1]);
#pragma unroll
      for (int n = 0; n < kWidth / 16; n++) {
        uint32_t b[4];
        load_matrices_transposed(b, T::ahead(my_values, n * 2, k * 16));
#pragma unroll
        for (int m = 0; m < kSixteens; m++) {
          mma(out[m][2 * n], a[m][0], a[m][1], a[m][2], a[m][3], b[0], b[1]);
          mma(out[m][2 * n + 1], a[m][0], a[m][1], a[m][2], a[m][3], b[2], b[3]);
        }
      }
    }
  }
#pragma unroll
  for (int m = 0; m < kSixteens; m++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const PromptRow r = find_row(p, tile, first_row + m * 16 + h * 8 + g);
      const int head = kv_head * p.group + r.head;
      const float share = finish_row(top[m][h], sum[m][h], to_log2, p.sinks ? p.sinks + head : nullptr);
      Out* to = p.y[r.token] + head * cache.width + 2 * t;
#pragma unroll
      for (int n = 0; n < kWidth / 8; n++)
        if (r.stored && n * 8 < cache.width)
          store_pair(to + n * 8, out[m][n][2 * h] * share, out[m][n][2 * h + 1] * share);
    }
}

template <int kWidth, class Out>
bool run(ix_stream* stream, const Gpu& gpu, const Prompt<Out>& p, const KvCache<__nv_bfloat16>& cache, int tokens) {
  const int tiles = most_tiles(tokens, p.sequences, p.group, p.skipped, Tile<kWidth>::kRows);
  launch_kernel<mma_kernel<kWidth, Out>>(stream, gpu, tiles * cache.heads, kWarps * 32, Tile<kWidth>::kShared, 1, p,
                                         cache);
  return true;
}
}  // namespace

namespace ix::cuda {

template <class Out>
bool prompt_mma(ix_stream* stream, const Gpu& gpu, const Prompt<Out>& p, const KvCache<__nv_bfloat16>& cache,
                int tokens) {
  if (cache.tokens % kPage != 0 || cache.width % 8 != 0) return false;
  if (cache.width <= 64) return run<64>(stream, gpu, p, cache, tokens);
  if (cache.width <= 80) return run<80>(stream, gpu, p, cache, tokens);
  if (cache.width <= 96) return run<96>(stream, gpu, p, cache, tokens);
  if (cache.width <= 128) return run<128>(stream, gpu, p, cache, tokens);
  return cache.width <= 256 && run<256>(stream, gpu, p, cache, tokens);
}
template bool prompt_mma(ix_stream*, const Gpu&, const Prompt<float>&, const KvCache<__nv_bfloat16>&, int);
template bool prompt_mma(ix_stream*, const Gpu&, const Prompt<__nv_bfloat16>&, const KvCache<__nv_bfloat16>&, int);

}  // namespace ix::cuda
