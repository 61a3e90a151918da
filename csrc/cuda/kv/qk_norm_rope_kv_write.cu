// qk_norm_rope_kv_write: norms of q and k heads (an omitted weight: no norm), rope, and the store into the cache, see
// docs/plan.md. A warp for each head of each token; of many tokens, for several heads of one. q, k, v and the rotated q
// are f32 or bf16, the arithmetic is f32.
#include "cuda/kv/cache.h"
#include "cuda/vector.h"

namespace {
using namespace ix::cuda;
using Bf16 = __nv_bfloat16;
constexpr int kWarps = 4;

template <class X, class Y>
struct Problem {
  Rows<X> q, k, v;
  Floats table;
  Rows<Y> y;
  const int32_t* slots;
  const float *qw, *kw;
  int tokens, heads, half, warps_per_token;
  bool interleaved;
  float eps;
};

// A lane holds kHeld times N columns of a head, `d` is the first of N.
template <int N, int kHeld, class X, class Y, class C>
__global__ void __launch_bounds__(kWarps * 32) kernel(Problem<X, Y> p, KvCache<C> cache) {
  __shared__ __align__(16) float heads[kWarps][kMaxHeadWidth];
  float* mine = heads[threadIdx.x / 32];
  const int unit = blockIdx.x * kWarps + threadIdx.x / 32, start = threadIdx.x % 32 * N, width = cache.width,
            rotated = 2 * p.half;
  const int token = unit / p.warps_per_token;
  allow_next_kernel();
  wait_for_earlier_kernels();
  if (token >= p.tokens) return;
  const float* table = p.table[token];
  Vector<N> cosine[kHeld], sine[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    const int d = start + i * 32 * N;
    if (d >= rotated) continue;
    if (p.interleaved) {
#pragma unroll
      for (int j = 0; j < N; j++)
        cosine[i].v[j] = __ldcg(table + (d + j) / 2), sine[i].v[j] = __ldcg(table + p.half + (d + j) / 2);
    } else {
      cosine[i] = load<N>(table + d % p.half), sine[i] = load<N>(table + p.half + d % p.half);
    }
  }
  const int slot = __ldcg(p.slots + token);
  for (int head = unit % p.warps_per_token; head < p.heads + cache.heads; head += p.warps_per_token) {
    const int kv_head = head - p.heads;
    const bool query = kv_head < 0;
    const X *x = query ? p.q[token] + head * width : p.k[token] + kv_head * width, *v = p.v[token] + kv_head * width;
    const float* w = query ? p.qw : p.kw;
    Vector<N> held[kHeld], weight[kHeld], value[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; i++) {
      const int d = start + i * 32 * N;
      if (d >= width) continue;
      held[i] = load<N>(x + d);
      if (w) weight[i] = load<N>(w + d);
      if (!query) value[i] = load<N>(v + d);
    }
    C* to = query ? nullptr : cache.slot(slot, kv_head);
    if (!query && !to) continue;
    if (w) {
      float squares = 0;
#pragma unroll
      for (int i = 0; i < kHeld; i++)
#pragma unroll
        for (int j = 0; j < N; j++)
          if (start + i * 32 * N < width) squares += held[i].v[j] * held[i].v[j];
      const float factor = 1.0f / sqrtf(warp_sum(squares) / float(width) + p.eps);
#pragma unroll
      for (int i = 0; i < kHeld; i++)
        held[i] = map([&](float a, float b) { return a * factor * b; }, held[i], weight[i]);
    }
    if (!p.interleaved) {  // the other half lies with another lane
#pragma unroll
      for (int i = 0; i < kHeld; i++)
        if (start + i * 32 * N < rotated) store(mine + start + i * 32 * N, held[i]);
      __syncwarp();
    }
#pragma unroll
    for (int i = 0; i < kHeld; i++) {
      const int d = start + i * 32 * N;
      Vector<N> other = held[i];
      if (p.interleaved) {  // pairs are neighbours
#pragma unroll
        for (int j = 0; j < N; j++)
          other.v[j] = N == 1 ? __shfl_xor_sync(~0u, held[i].v[0], 1) : held[i].v[j ^ int(N > 1)];
      } else if (d < rotated) {
        const bool second = d >= p.half;
        const float* from = mine + (second ? d - p.half : d + p.half);
#pragma unroll
        for (int j = 0; j < N; j++) other.v[j] = from[j];
      }
      if (d >= width) continue;
      if (d < rotated) {
#pragma unroll
        for (int j = 0; j < N; j++) {
          const bool second = p.interleaved ? (d + j) % 2 : d >= p.half;
          held[i].v[j] = held[i].v[j] * cosine[i].v[j] + (second ? other.v[j] : -other.v[j]) * sine[i].v[j];
        }
      }
      if (query) {
        store(p.y[token] + head * width + d, held[i]);
      } else {
        store(to + d, held[i]);
        store(to + cache.half() + d, value[i]);
      }
    }
    __syncwarp();  // the next head's values come in the same place
  }
}

bool takes_fours(const void* vector) { return reinterpret_cast<uintptr_t>(vector) % 16 == 0; }

template <class X, class Y, class C>
void launch(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor* t = call->operands;
  Problem<X, Y> p{Rows<X>(t[1]),
                  Rows<X>(t[2]),
                  Rows<X>(t[3]),
                  Floats(t[4]),
                  Rows<Y>(t[8]),
                  static_cast<const int32_t*>(t[5].data),
                  static_cast<const float*>(t[6].data),
                  static_cast<const float*>(t[7].data),
                  t[1].dims[0],
                  int(call->attrs[0].i),
                  t[4].dims[1] / 2,
                  0,
                  call->attrs[1].i != 0,
                  float(call->attrs[2].f)};
  const KvCache<C> cache(t[0]);
  if (p.tokens <= 0) return;
  const Gpu gpu = current_gpu();
  const int heads = p.heads + cache.heads;
  p.warps_per_token = int64_t(p.tokens) * heads > 64 * gpu.sms ? divide_up(heads, 4) : heads;
  const int blocks = divide_up(int64_t(p.tokens) * p.warps_per_token, kWarps);
  if (p.half % 4 != 0 || !takes_fours(cache.width, p.q, p.k, p.v, p.table, p.y) || !takes_fours(p.qw) ||
      !takes_fours(p.kw))
    launch_kernel<kernel<1, kMaxHeadWidth / 32, X, Y, C>>(stream, gpu, blocks, kWarps * 32, 0, 1, p, cache);
  else if (cache.width <= 128)
    launch_kernel<kernel<4, 1, X, Y, C>>(stream, gpu, blocks, kWarps * 32, 0, 1, p, cache);
  else
    launch_kernel<kernel<4, kMaxHeadWidth / 128, X, Y, C>>(stream, gpu, blocks, kWarps * 32, 0, 1, p, cache);
}
}  // namespace

#define IX_FUSED(KV, X, Y)                                                                                   \
  "qk_norm_rope_kv_write(cache: " KV "[B,L,K,D], q: " X "[T,N], k: " X "[T,M], v: " X                        \
  "[T,M], table: f32[T,R], slots: i32[T], qw?: f32[D], kw?: f32[D], heads: i32, interleaved: i32, eps: f32)" \
  " -> " Y "[T,N], " KV "[B,L,K,D]"
IX_KERNEL(qk_norm_rope_kv_write_f32, IX_FUSED("kv_f32", "f32", "f32"), "", (launch<float, float, float>), nullptr)
IX_KERNEL(qk_norm_rope_kv_write_bf16, IX_FUSED("kv_bf16", "f32", "f32"), "", (launch<float, float, Bf16>), nullptr)
IX_KERNEL(qk_norm_rope_kv_write_x, IX_FUSED("kv_bf16", "bf16", "f32"), "", (launch<Bf16, float, Bf16>), nullptr)
IX_KERNEL(qk_norm_rope_kv_write_y, IX_FUSED("kv_bf16", "f32", "bf16"), "", (launch<float, Bf16, Bf16>), nullptr)
IX_KERNEL(qk_norm_rope_kv_write_xy, IX_FUSED("kv_bf16", "bf16", "bf16"), "", (launch<Bf16, Bf16, Bf16>), nullptr)
