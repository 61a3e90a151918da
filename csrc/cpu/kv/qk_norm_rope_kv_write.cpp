// qk_norm_rope_kv_write: norms of q and k heads (an omitted weight: no norm), rope, and the store into the cache in one
// pass over the step's tokens, see docs/plan.md. The same arithmetic as the ops one by one. Head widths up to 256.
#include "cpu/elementwise/rows.h"
#include "cpu/kv/store.h"
#include "cpu/norm/norm.h"
#include "cpu/rope/rope.h"

namespace {
using namespace ix::cpu;

struct HeadTransform {
  const ix_tensor& table;
  int width;
  bool interleaved;
  float eps;

  IX_INLINE void operator()(const float* x, float* y, const float* w, int token) const {
    if (w) rms_norm_row(x, y, width, w, eps);
    rope_head(w ? y : x, y, width, row(table, token), table.dims[1] / 2, interleaved);
  }
};

template <int kPair>
void launch(ix_stream* stream, const ix_kernel_call* call) {
  const KvCache<kPair> cache(call->operands[0]);
  const ix_tensor &q = call->operands[1], &k = call->operands[2], &v = call->operands[3], &slots = call->operands[5];
  const ix_tensor &qw = call->operands[6], &kw = call->operands[7], &y = call->operands[8];
  const int heads = int(call->attrs[0].i), width = cache.width;
  const HeadTransform transform{call->operands[4], width, call->attrs[1].i != 0, float(call->attrs[2].f)};
  for_token_pieces(stream, q.dims[0], [&](int first, int count) {
    for (int t = first; t < first + count; t++)
      for (int h = 0; h < heads; h++) transform(row(q, t) + h * width, row(y, t) + h * width, floats(qw), t);
    alignas(64) float keys[kStoreTokens][kMaxHeadWidth];
    for (int h = 0; h < cache.heads; h++) {
      for (int i = 0; i < count; i++) transform(row(k, first + i) + h * width, keys[i], floats(kw), first + i);
      store_head(cache, h, ints(slots) + first, count, keys[0], kMaxHeadWidth, row(v, first) + h * width, v.stride);
    }
  });
}
}  // namespace

// clang-format off: the name must follow the macro, CMake looks for it there
IX_KERNEL(qk_norm_rope_kv_write_f32,
          "qk_norm_rope_kv_write(cache: kv_f32[B,L,K,D], q: f32[T,N], k: f32[T,M], v: f32[T,M], table: f32[T,R], slots: "
          "i32[T], qw?: f32[D], kw?: f32[D], heads: i32, interleaved: i32, eps: f32) -> f32[T,N], kv_f32[B,L,K,D]",
          "", launch<1>, nullptr)
IX_KERNEL(qk_norm_rope_kv_write_bf16,
          "qk_norm_rope_kv_write(cache: kv_bf16[B,L,K,D], q: f32[T,N], k: f32[T,M], v: f32[T,M], table: f32[T,R], slots: "
          "i32[T], qw?: f32[D], kw?: f32[D], heads: i32, interleaved: i32, eps: f32) -> f32[T,N], kv_bf16[B,L,K,D]",
          "", launch<2>, nullptr)
// clang-format on
