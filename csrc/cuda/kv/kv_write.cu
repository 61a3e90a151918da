// kv_write: see docs/plan.md.
#include "cuda/kv/cache.h"
#include "cuda/vector.h"

namespace {
using namespace ix::cuda;
using Bf16 = __nv_bfloat16;

template <class X, class C>
void launch(ix_stream* stream, const ix_kernel_call* call) {
  const KvCache<C> cache(call->operands[0]);
  const Rows<X> k(call->operands[1]), v(call->operands[2]);
  const int32_t* slots = static_cast<const int32_t*>(call->operands[3].data);
  for_vectors(stream, call->operands[1].dims[0], call->operands[1].dims[1], width_for(cache.width, k, v),
              [=] __device__(auto p) {
                const auto key = p.of(k), value = p.of(v);
                C* to = cache.slot(__ldcg(slots + p.row), p.column / cache.width);
                if (!to) return;
                store(to + p.column % cache.width, key);
                store(to + p.column % cache.width + cache.half(), value);
              });
}
}  // namespace

#define IX_KV_WRITE(KV, X) \
  "kv_write(cache: " KV "[B,L,K,D], k: " X "[T,N], v: " X "[T,N], slots: i32[T]) -> " KV "[B,L,K,D]"
IX_KERNEL(kv_write_f32, IX_KV_WRITE("kv_f32", "f32"), "", (launch<float, float>), nullptr)
IX_KERNEL(kv_write_bf16, IX_KV_WRITE("kv_bf16", "f32"), "", (launch<float, Bf16>), nullptr)
IX_KERNEL(kv_write_from_bf16, IX_KV_WRITE("kv_bf16", "bf16"), "", (launch<Bf16, Bf16>), nullptr)
