// linear and embed over row-major float weights: exact weights, f32 activations and sums, see docs/plan.md.
// Few tokens: a warp streams a row of weights; many: tiles in shared memory.
#include "cuda/linear/rows.h"
#include "cuda/vector.h"

namespace {
using namespace ix::cuda;

constexpr int kWarps = 4;

// sums[r][t] = x[t] . row r of w (rows `stride` apart) over a warp; w is padded with zeros, x is read as far as it
// goes. kWide: x begins at multiples of 16 bytes.
template <int kRows, int kTokens, bool kWide, class T>
__device__ void dot_rows(float (&sums)[kRows][kTokens], const float* const (&x)[kTokens], const T* w, int64_t stride,
                         int k) {
  constexpr int kVector = 16 / sizeof(T);
  for (int i = threadIdx.x % 32 * kVector; i < k; i += 32 * kVector) {
    float weights[kRows][kVector], values[kVector];
#pragma unroll
    for (int r = 0; r < kRows; r++) load_vector(w + r * stride + i, weights[r]);
    const bool whole = kWide && i + kVector <= k;
#pragma unroll
    for (int t = 0; t < kTokens; t++) {
#pragma unroll
      for (int j = 0; j < kVector; j += 4) {
        if (whole) {
          *reinterpret_cast<float4*>(values + j) = *reinterpret_cast<const float4*>(x[t] + i + j);
        } else {
#pragma unroll
          for (int l = j; l < j + 4; l++) values[l] = i + l < k ? x[t][i + l] : 0.0f;
        }
      }
#pragma unroll
      for (int r = 0; r < kRows; r++)
#pragma unroll
        for (int j = 0; j < kVector; j++) sums[r][t] = fmaf(values[j], weights[r][j], sums[r][t]);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; r++)
#pragma unroll
    for (int t = 0; t < kTokens; t++) sums[r][t] = warp_sum(sums[r][t]);
}

bool is_wide(const Product& p) {
  return reinterpret_cast<uintptr_t>(p.x) % 16 == 0 && p.x_stride % 4 == 0 && p.k % 4 == 0;
}

// A warp streams kRows rows of weights; the last panel is whole, so that it may read behind the last row.
template <int kRows, int kTokens, bool kWide, class T>
__global__ void few_tokens_kernel(Product p, RowWeights<T> w) {
  const int row = (blockIdx.x * kWarps + threadIdx.x / 32) * kRows, first = blockIdx.y * kTokens;
  if (row >= p.n) return;
  const float* x[kTokens];
  float sums[kRows][kTokens] = {};
#pragma unroll
  for (int t = 0; t < kTokens; t++) x[t] = p.x + min(first + t, p.tokens - 1) * p.x_stride;
  dot_rows<kRows, kTokens, kWide>(sums, x, w.row(row), w.stride, p.k);
  if (threadIdx.x % 32 != 0) return;
#pragma unroll
  for (int t = 0; t < kTokens; t++)
#pragma unroll
    for (int r = 0; r < kRows; r++)
      if (first + t < p.tokens && row + r < p.n)
        p.y[(first + t) * p.y_stride + row + r] = sums[r][t] + (p.bias ? p.bias[row + r] : 0.0f);
}

// 64 tokens x 64 rows a block, 4 x 4 a thread.
constexpr int kTile = 64, kDepth = 16;
template <class T>
__global__ void __launch_bounds__(256) many_tokens_kernel(Product p, RowWeights<T> w) {
  __shared__ float xs[kDepth][kTile + 4], ws[kDepth][kTile + 4];
  const int first_row = blockIdx.x * kTile, first_token = blockIdx.y * kTile;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16, load_k = threadIdx.x % kDepth, load_r = threadIdx.x / kDepth;
  float sums[4][4] = {};
  for (int k0 = 0; k0 < p.k; k0 += kDepth) {
    const int k = k0 + load_k;
#pragma unroll
    for (int i = 0; i < kTile; i += 16) {
      const int token = first_token + load_r + i, row = first_row + load_r + i;
      xs[load_k][load_r + i] = token < p.tokens && k < p.k ? p.x[token * p.x_stride + k] : 0.0f;
      ws[load_k][load_r + i] = k < p.k ? to_float(w.row(row)[k]) : 0.0f;  // the last panel is whole
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kDepth; d++) {
      const float4 a = *reinterpret_cast<const float4*>(&xs[d][ty * 4]),
                   b = *reinterpret_cast<const float4*>(&ws[d][tx * 4]);
      const float av[4] = {a.x, a.y, a.z, a.w}, bv[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sums[i][j] = fmaf(av[i], bv[j], sums[i][j]);
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) {
      const int token = first_token + ty * 4 + i, row = first_row + tx * 4 + j;
      if (token < p.tokens && row < p.n) p.y[token * p.y_stride + row] = sums[i][j] + (p.bias ? p.bias[row] : 0.0f);
    }
}

template <int kRows, int kTokens, class T>
void few_tokens(ix_stream* stream, const Product& p, const RowWeights<T>& w) {
  const dim3 grid(divide_up(p.n, kWarps * kRows), divide_up(p.tokens, kTokens));
  if (is_wide(p))
    few_tokens_kernel<kRows, kTokens, true, T><<<grid, 32 * kWarps, 0, stream->handle>>>(p, w);
  else
    few_tokens_kernel<kRows, kTokens, false, T><<<grid, 32 * kWarps, 0, stream->handle>>>(p, w);
}

// kOrdered: a warp takes each sum in the same order for every number of tokens.
template <class T, bool kOrdered>
void linear(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor &x = call->operands[0], &w = call->operands[1], &y = call->operands[3];
  const Product p{static_cast<const float*>(x.data),
                  x.stride,
                  static_cast<float*>(y.data),
                  y.stride,
                  static_cast<const float*>(call->operands[2].data),
                  x.dims[0],
                  w.dims[0],
                  w.dims[1]};
  const RowWeights<T> weights(w.data, p.n, p.k);
  if (p.tokens <= 0) return;
  if (p.tokens == 1) return few_tokens<2, 1>(stream, p, weights);
  if (p.tokens == 2) return few_tokens<2, 2>(stream, p, weights);
  if (p.tokens <= 4) return few_tokens<4, 4>(stream, p, weights);
  if (kOrdered || p.tokens <= 16) return few_tokens<4, 8>(stream, p, weights);
  many_tokens_kernel<T>
      <<<dim3(divide_up(p.n, kTile), divide_up(p.tokens, kTile)), 256, 0, stream->handle>>>(p, weights);
}

// an id outside of the table gives zeros
template <class T>
void embed(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor& w = call->operands[1];
  const int32_t* ids = static_cast<const int32_t*>(call->operands[0].data);
  const Floats y(call->operands[2]);
  const RowWeights<T> weights(w.data, w.dims[0], w.dims[1]);
  const int rows = w.dims[0], columns = w.dims[1];
  for_vectors(stream, call->operands[2].dims[0], columns, width_for(columns, y), [=] __device__(auto p) {
    const int id = __ldcg(ids + p.row);
    Vector<p.kCount> v{};
    if (id >= 0 && id < rows) v = load<p.kCount>(weights.row(id) + p.column);
    store(y[p.row] + p.column, v);
  });
}
}  // namespace

#define IX_ROW_LAYOUT(type, T) {"row_" type, type, kPanel, RowWeights<T>::panel_bytes, nullptr}
#define IX_LINEAR(W) "linear(x: f32[T,K], w: " W "[N,K], bias?: f32[N]) -> f32[T,N]"
#define IX_EMBED(W) "embed(ids: i32[T], w: " W "[V,D]) -> f32[T,D]"

IX_LAYOUT(row_f32, IX_ROW_LAYOUT("f32", float))
IX_LAYOUT(row_bf16, IX_ROW_LAYOUT("bf16", __nv_bfloat16))
IX_LAYOUT(row_f16, IX_ROW_LAYOUT("f16", __half))
IX_KERNEL(linear_f32, IX_LINEAR("row_f32"), "numerics=f32 order=batch", (linear<float, false>), nullptr)
IX_KERNEL(linear_bf16, IX_LINEAR("row_bf16"), "numerics=f32 order=batch", (linear<__nv_bfloat16, false>), nullptr)
IX_KERNEL(linear_f16, IX_LINEAR("row_f16"), "numerics=f32 order=batch", (linear<__half, false>), nullptr)
IX_KERNEL(linear_f32_ordered, IX_LINEAR("row_f32"), "numerics=f32", (linear<float, true>), nullptr)
IX_KERNEL(linear_bf16_ordered, IX_LINEAR("row_bf16"), "numerics=f32", (linear<__nv_bfloat16, true>), nullptr)
IX_KERNEL(linear_f16_ordered, IX_LINEAR("row_f16"), "numerics=f32", (linear<__half, true>), nullptr)
IX_KERNEL(embed_f32, IX_EMBED("row_f32"), "", embed<float>, nullptr)
IX_KERNEL(embed_bf16, IX_EMBED("row_bf16"), "", embed<__nv_bfloat16>, nullptr)
IX_KERNEL(embed_f16, IX_EMBED("row_f16"), "", embed<__half>, nullptr)
