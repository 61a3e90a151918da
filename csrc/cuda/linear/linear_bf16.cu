// linear with bf16 arithmetic over row_bf16 weights, and f16 over row_f16: chooses the product by the number of tokens,
// which only the launch knows. f32 activations are rounded first.
#include "cuda/linear/gemm.h"
#include "cuda/vector.h"

namespace {
using namespace ix::cuda;
using Bf16 = __nv_bfloat16;

int64_t padded(int64_t k) { return (k + 63) / 64 * 64; }
size_t rounded_bytes(int64_t tokens, int64_t k) { return size_t(tokens * padded(k) * 2 + 255) / 256 * 256; }

// x as the products take it, zeros behind its columns.
template <class X, class W>
void round_activations(ix_stream* stream, const Rows<X>& x, int tokens, int k, W* to) {
  const int columns = int(padded(k));
  for_vectors(stream, tokens, columns, width_for(k, x), [=] __device__(auto p) {
    Vector<p.kCount> v{};
    if (p.column < k) v = p.of(x);
    store(to + int64_t(p.row) * columns + p.column, v);
  });
}

template <class X, class Y, bool kOneOrder, class W = Bf16>
void launch(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor &x = call->operands[0], &w = call->operands[1], &y = call->operands[3];
  const int tokens = x.dims[0], n = w.dims[0], k = w.dims[1];
  if (tokens <= 0) return;
  const Gpu gpu = current_gpu();
  const RowWeights<W> weights(w.data, n, k);
  const bool as_it_lies =
      sizeof(X) == 2 && k % 64 == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride % 8 == 0;
  if (!as_it_lies) round_activations(stream, Rows<X>(x), tokens, k, static_cast<W*>(call->workspace));
  const Bf16Product product{static_cast<const Bf16*>(as_it_lies ? x.data : call->workspace),
                            reinterpret_cast<const Bf16*>(weights.data),
                            as_it_lies ? x.stride : padded(k),
                            weights.stride,
                            y.data,
                            y.stride,
                            static_cast<const float*>(call->operands[2].data),
                            tokens,
                            n,
                            k,
                            sizeof(Y) == 2,
                            kOneOrder,
                            std::is_same_v<W, __half>};
  if (tokens <= kStreamTokens && stream_weights(stream, gpu, product)) return;
  if (!kOneOrder) {
    if (tokens <= kRingTokens) return stream_weights_ring(stream, gpu, product);
    if (cublaslt_product(stream, gpu, product, static_cast<char*>(call->workspace) + rounded_bytes(tokens, k))) return;
  }
  if (gemm_product(stream, gpu, product, choose_gemm(gpu, product))) return;
  tiled_product(stream, gpu, product);
}

template <bool kOneOrder>
size_t workspace(const ix_kernel_call* call, int) {
  const int64_t tokens = call->operands[0].dims[0];
  const int32_t* w = call->operands[1].dims;
  return rounded_bytes(tokens, w[1]) + (!kOneOrder && tokens > kRingTokens ? cublaslt_workspace(w[0]) : 0);
}
}  // namespace

#define IX_LINEAR_BF16(X, Y) "linear(x: " X "[T,K], w: row_bf16[N,K], bias?: f32[N]) -> " Y "[T,N]"
#define IX_FAST "numerics=bf16 order=batch"
IX_KERNEL(linear_bf16_fast, IX_LINEAR_BF16("f32", "f32"), IX_FAST, (launch<float, float, false>), workspace<false>)
IX_KERNEL(linear_bf16_y, IX_LINEAR_BF16("f32", "bf16"), IX_FAST, (launch<float, Bf16, false>), workspace<false>)
IX_KERNEL(linear_bf16_x, IX_LINEAR_BF16("bf16", "f32"), IX_FAST, (launch<Bf16, float, false>), workspace<false>)
IX_KERNEL(linear_bf16_xy, IX_LINEAR_BF16("bf16", "bf16"), IX_FAST, (launch<Bf16, Bf16, false>), workspace<false>)
// whatever the number of tokens, the sums of an element are taken in one order
#define IX_ORDERED "numerics=bf16"
IX_KERNEL(linear_ordered, IX_LINEAR_BF16("f32", "f32"), IX_ORDERED, (launch<float, float, true>), workspace<true>)
IX_KERNEL(linear_ordered_y, IX_LINEAR_BF16("f32", "bf16"), IX_ORDERED, (launch<float, Bf16, true>), workspace<true>)
IX_KERNEL(linear_ordered_x, IX_LINEAR_BF16("bf16", "f32"), IX_ORDERED, (launch<Bf16, float, true>), workspace<true>)
IX_KERNEL(linear_ordered_xy, IX_LINEAR_BF16("bf16", "bf16"), IX_ORDERED, (launch<Bf16, Bf16, true>), workspace<true>)

IX_KERNEL(linear_f16_fast, "linear(x: f32[T,K], w: row_f16[N,K], bias?: f32[N]) -> f32[T,N]",
          "numerics=f16 order=batch", (launch<float, float, false, __half>), workspace<false>)
