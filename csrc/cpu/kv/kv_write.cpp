// kv_write: see docs/plan.md. Head widths up to 256.
#include "cpu/elementwise/rows.h"
#include "cpu/kv/store.h"

namespace {
using namespace ix::cpu;

template <int kPair>
void launch(ix_stream* stream, const ix_kernel_call* call) {
  const KvCache<kPair> cache(call->operands[0]);
  const ix_tensor &k = call->operands[1], &v = call->operands[2], &slots = call->operands[3];
  for_token_pieces(stream, k.dims[0], [&](int first, int count) {
    for (int h = 0; h < cache.heads; h++)
      store_head(cache, h, ints(slots) + first, count, row(k, first) + h * cache.width, k.stride,
                 row(v, first) + h * cache.width, v.stride);
  });
}
}  // namespace

IX_KERNEL(kv_write_f32, "kv_write(cache: kv_f32[B,L,K,D], k: f32[T,N], v: f32[T,N], slots: i32[T]) -> kv_f32[B,L,K,D]",
          "", launch<1>, nullptr)
IX_KERNEL(kv_write_bf16,
          "kv_write(cache: kv_bf16[B,L,K,D], k: f32[T,N], v: f32[T,N], slots: i32[T]) -> kv_bf16[B,L,K,D]", "",
          launch<2>, nullptr)
