// kv_write: see docs/plan.md.
#include "cuda/kv/cache.h"

namespace {
using namespace ix::cuda;

template <class T>
void launch(ix_stream* stream, const ix_kernel_call* call) {
  const KvCache<T> cache(call->operands[0]);
  const Floats k(call->operands[1]), v(call->operands[2]);
  const int32_t* slots = static_cast<const int32_t*>(call->operands[3].data);
  for_elements(stream, call->operands[1].dims[0], call->operands[1].dims[1], [=] __device__(int t, int c) {
    T* to = cache.slot(slots[t], c / cache.width);
    if (!to) return;
    put(to + c % cache.width, k[t][c]);
    put(to + c % cache.width + cache.half(), v[t][c]);
  });
}
}  // namespace

IX_KERNEL(kv_write_f32, "kv_write(cache: kv_f32[B,L,K,D], k: f32[T,N], v: f32[T,N], slots: i32[T]) -> kv_f32[B,L,K,D]",
          "", launch<float>, nullptr)
IX_KERNEL(kv_write_bf16,
          "kv_write(cache: kv_bf16[B,L,K,D], k: f32[T,N], v: f32[T,N], slots: i32[T]) -> kv_bf16[B,L,K,D]", "",
          launch<__nv_bfloat16>, nullptr)
