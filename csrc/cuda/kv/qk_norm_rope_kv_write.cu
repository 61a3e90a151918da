// qk_norm_rope_kv_write: norms of q and k heads (an omitted weight: no norm), rope, and the store into the cache, see
// docs/plan.md. A warp for each head of each token.
#include "cuda/kv/cache.h"

namespace {
using namespace ix::cuda;
constexpr int kWarps = 4;

struct Problem {
  Floats q, k, v, table, y;
  const int32_t* slots;
  const float *qw, *kw;
  int tokens, heads, half;
  bool interleaved;
  float eps;
};

template <class T>
__global__ void kernel(Problem p, KvCache<T> cache) {
  __shared__ float heads[kWarps][kMaxHeadWidth];
  const int per_token = p.heads + cache.heads, unit = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32,
            width = cache.width;
  if (unit >= p.tokens * per_token) return;
  const int token = unit / per_token, head = unit % per_token, kv_head = head - p.heads;
  const bool query = kv_head < 0;
  const float *x = query ? p.q[token] + head * width : p.k[token] + kv_head * width, *w = query ? p.qw : p.kw;
  float* mine = heads[threadIdx.x / 32];
  float squares = 0;
  for (int d = lane; d < width; d += 32) squares += x[d] * x[d];
  const float factor = w ? 1.0f / sqrtf(warp_sum(squares) / float(width) + p.eps) : 1.0f;
  for (int d = lane; d < width; d += 32) mine[d] = w ? x[d] * factor * w[d] : x[d];
  __syncwarp();
  T* to = query ? nullptr : cache.slot(p.slots[token], kv_head);
  if (!query && !to) return;
  const float* table = p.table[token];
  const int apart = p.interleaved ? 1 : p.half;
  for (int d = lane; d < width; d += 32) {
    float value = mine[d];
    if (d < 2 * p.half) {
      const bool second = p.interleaved ? d % 2 : d >= p.half;
      const int angle = p.interleaved ? d / 2 : d % p.half;
      const float other = mine[second ? d - apart : d + apart];
      value = value * table[angle] + (second ? other : -other) * table[p.half + angle];
    }
    if (query) {
      p.y[token][head * width + d] = value;
    } else {
      put(to + d, value);
      put(to + d + cache.half(), p.v[token][kv_head * width + d]);
    }
  }
}

template <class T>
void launch(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor* t = call->operands;
  const Problem p{Floats(t[1]),
                  Floats(t[2]),
                  Floats(t[3]),
                  Floats(t[4]),
                  Floats(t[8]),
                  static_cast<const int32_t*>(t[5].data),
                  static_cast<const float*>(t[6].data),
                  static_cast<const float*>(t[7].data),
                  t[1].dims[0],
                  int(call->attrs[0].i),
                  t[4].dims[1] / 2,
                  call->attrs[1].i != 0,
                  float(call->attrs[2].f)};
  const KvCache<T> cache(t[0]);
  if (p.tokens > 0)
    kernel<T>
        <<<divide_up(int64_t(p.tokens) * (p.heads + cache.heads), kWarps), 32 * kWarps, 0, stream->handle>>>(p, cache);
}
}  // namespace

#define IX_FUSED(KV)                                                                                     \
  "qk_norm_rope_kv_write(cache: " KV                                                                     \
  "[B,L,K,D], q: f32[T,N], k: f32[T,M], v: f32[T,M], table: f32[T,R], slots: i32[T], qw?: f32[D], kw?: " \
  "f32[D], heads: i32, interleaved: i32, eps: f32) -> f32[T,N], " KV "[B,L,K,D]"
IX_KERNEL(qk_norm_rope_kv_write_f32, IX_FUSED("kv_f32"), "", launch<float>, nullptr)
IX_KERNEL(qk_norm_rope_kv_write_bf16, IX_FUSED("kv_bf16"), "", launch<__nv_bfloat16>, nullptr)
