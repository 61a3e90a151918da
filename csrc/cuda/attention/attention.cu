// attention: causal attention over the paged cache, see docs/plan.md. A bf16 cache is served by decode.h and prompt.h
// as far as they can; the kernel here takes the rest. A block for each token and part of a KV head's query heads: its
// warps take positions in turn, with a running softmax each, and merge at the end.
#include "cuda/attention/decode.h"
#include "cuda/attention/prompt.h"
#include "cuda/kv/cache.h"
#include "cuda/vector.h"

namespace {
using namespace ix::cuda;
constexpr int kSteps = 4;  // positions that a warp has under way

template <class Out>
struct Problem : Prompt<Out> {
  int parts;  // that the query heads of a KV head fall into
};

// kHeads query heads at most; a lane holds the columns lane, lane + 32, ...
template <class T, class Out, int kHeads, int kColumns, int kWarps>
__global__ void __launch_bounds__(32 * kWarps) attention_kernel(Problem<Out> p, KvCache<T> cache) {
  extern __shared__ float shared[];  // [kWarps][kHeads][width] sums, then [kWarps][kHeads] tops and totals
  const int token = blockIdx.x, kv_head = blockIdx.y / p.parts, part = blockIdx.y % p.parts;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, width = cache.width;
  const int first_head = kv_head * p.group + part * kHeads, num_heads = min(kHeads, p.group - part * kHeads);
  int low = 0, high = p.sequences - 1;  // the sequence that owns the token
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (p.seq_start[middle] <= token)
      low = middle;
    else
      high = middle - 1;
  }
  const int last = p.seq_context[low] - (p.seq_start[low + 1] - token),
            first = p.window > 0 ? max(0, last - p.window + 1) : 0;
  const int32_t* blocks = p.table[p.seq_row[low]];

  float q[kHeads][kColumns], sums[kHeads][kColumns], top[kHeads], total[kHeads];
#pragma unroll
  for (int h = 0; h < kHeads; h++) {
    top[h] = -INFINITY, total[h] = 0;
#pragma unroll
    for (int i = 0; i < kColumns; i++) {
      const int d = lane + 32 * i;
      q[h][i] = h < num_heads && d < width ? p.q[token][(first_head + h) * width + d] : 0.0f;
      sums[h][i] = 0;
    }
  }
  for (int start = first + warp * kSteps; start <= last; start += kWarps * kSteps) {
    float key[kSteps][kColumns], value[kSteps][kColumns];
#pragma unroll
    for (int j = 0; j < kSteps; j++) {
      const int position = min(start + j, last);
      const T* k = cache.k(blocks[position / cache.tokens], kv_head) + int64_t(position % cache.tokens) * width;
#pragma unroll
      for (int i = 0; i < kColumns; i++) {
        const int d = lane + 32 * i;
        key[j][i] = d < width ? get(k + d) : 0.0f;
        value[j][i] = d < width ? get(k + cache.half() + d) : 0.0f;
      }
    }
#pragma unroll
    for (int h = 0; h < kHeads; h++) {
      float score[kSteps], higher = top[h];
#pragma unroll
      for (int j = 0; j < kSteps; j++) {
        float product = 0;
#pragma unroll
        for (int i = 0; i < kColumns; i++) product = fmaf(q[h][i], key[j][i], product);
        product = warp_sum(product) * p.scale;
        if (p.softcap > 0) product = p.softcap * tanhf(product / p.softcap);
        score[j] = start + j <= last ? product : -INFINITY;
        higher = fmaxf(higher, score[j]);
      }
      const float keep = expf(top[h] - higher);
      top[h] = higher;
      total[h] *= keep;
#pragma unroll
      for (int i = 0; i < kColumns; i++) sums[h][i] *= keep;
#pragma unroll
      for (int j = 0; j < kSteps; j++) {
        const float weight = expf(score[j] - higher);
        total[h] += weight;
#pragma unroll
        for (int i = 0; i < kColumns; i++) sums[h][i] = fmaf(weight, value[j][i], sums[h][i]);
      }
    }
  }

  float *tops = shared + kWarps * kHeads * width, *totals = tops + kWarps * kHeads;
#pragma unroll
  for (int h = 0; h < kHeads; h++) {
#pragma unroll
    for (int i = 0; i < kColumns; i++)
      if (lane + 32 * i < width) shared[(warp * kHeads + h) * width + lane + 32 * i] = sums[h][i];
    if (lane == 0) tops[warp * kHeads + h] = top[h], totals[warp * kHeads + h] = total[h];
  }
  __syncthreads();
  for (int h = warp; h < num_heads; h += kWarps) {
    const int head = first_head + h;
    float highest = p.sinks ? p.sinks[head] : -INFINITY;
    for (int w = 0; w < kWarps; w++) highest = fmaxf(highest, tops[w * kHeads + h]);
    float share[kWarps], all = p.sinks ? expf(p.sinks[head] - highest) : 0.0f;
#pragma unroll
    for (int w = 0; w < kWarps; w++) {
      share[w] = expf(tops[w * kHeads + h] - highest);
      all += totals[w * kHeads + h] * share[w];
    }
    for (int d = lane; d < width; d += 32) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWarps; w++) sum += shared[(w * kHeads + h) * width + d] * share[w];
      store(p.y[token] + head * width + d, Vector<1>{{sum / all}});
    }
  }
}

// Where there are few tokens, many warps share one's context.
template <int kHeads, int kColumns, int kWarps, class T, class Out>
void run(ix_stream* stream, Problem<Out> p, const KvCache<T>& cache, int tokens) {
  p.parts = divide_up(p.group, kHeads);
  const size_t shared = size_t(kWarps) * kHeads * (cache.width + 2) * sizeof(float);
  attention_kernel<T, Out, kHeads, kColumns, kWarps>
      <<<dim3(tokens, cache.heads * p.parts), 32 * kWarps, shared, stream->handle>>>(p, cache);
}

template <int kHeads, bool kOrdered, class T, class Out>
void with_width(ix_stream* stream, const Problem<Out>& p, const KvCache<T>& cache, int tokens) {
  const bool few = kOrdered || tokens <= 32;
  if (cache.width <= 64)
    return few ? run<kHeads, 2, 16>(stream, p, cache, tokens) : run<kHeads, 2, 4>(stream, p, cache, tokens);
  if (cache.width <= 128)
    return few ? run<kHeads, 4, 16>(stream, p, cache, tokens) : run<kHeads, 4, 4>(stream, p, cache, tokens);
  run<kHeads, 8, 4>(stream, p, cache, tokens);
}

// Sequences of few new tokens by one kernel, all others by another, where the call may hold both. False: not served.
template <bool kOrdered, class Out>
bool fast_attention(ix_stream* stream, const ix_kernel_call* call, Prompt<Out> p, const KvCache<__nv_bfloat16>& cache,
                    int tokens) {
  const bool all_short = !kOrdered && (tokens == p.sequences || tokens <= kDecodeTokens),
             all_long = kOrdered || (p.sequences == 1 && !all_short);
  const bool decoded = !all_long && decode_attention(stream, call, sizeof(Out) == 2);
  if (all_short) return decoded;
  const auto odd = [](const auto& x) { return reinterpret_cast<uintptr_t>(x.data) % 16 != 0 || x.stride % 4 != 0; };
  const Gpu gpu = current_gpu();
  if (gpu.capability < 80 || !(p.scale > 0) || odd(p.q) || odd(p.y)) return false;
  p.skipped = decoded ? kDecodeTokens : 0;
  return prompt_wgmma(stream, gpu, p, cache, tokens) || prompt_mma(stream, gpu, p, cache, tokens);
}

// kOrdered: the bits of a token's result depend on its own sequence alone, however that is cut into steps.
template <class T, class Out, bool kOrdered>
void launch(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor* t = call->operands;
  const KvCache<T> cache(t[1]);
  const int tokens = t[0].dims[0], group = int(call->attrs[0].i) / cache.heads;
  const Problem<Out> p{{Floats(t[0]), Rows<Out>(t[7]), Ints(t[5]), static_cast<const int32_t*>(t[2].data),
                        static_cast<const int32_t*>(t[3].data), static_cast<const int32_t*>(t[4].data),
                        static_cast<const float*>(t[6].data), t[3].dims[0], group, int(call->attrs[2].i), 0,
                        float(call->attrs[1].f), float(call->attrs[3].f)},
                       1};
  if (tokens <= 0 || p.sequences <= 0) return;
  if constexpr (sizeof(T) == 2) {
    if (fast_attention<kOrdered>(stream, call, p, cache, tokens)) return;
  }
  if (group == 1) return with_width<1, kOrdered>(stream, p, cache, tokens);
  if (group == 2) return with_width<2, kOrdered>(stream, p, cache, tokens);
  with_width<4, kOrdered>(stream, p, cache, tokens);
}

size_t parts_workspace(const ix_kernel_call* call, int) { return decode_attention_workspace(call); }
using Bf16 = __nv_bfloat16;
}  // namespace

#define IX_ATTENTION(KV, Y)                                                                             \
  "attention(q: f32[T,N], cache: " KV                                                                   \
  "[B,L,K,D], seq_start: i32[R], seq_context: i32[R], seq_row: i32[R], block_table: i32[P,C], sinks?: " \
  "f32[H], heads: i32, scale: f32, window: i32, softcap: f32) -> " Y "[T,N]"
IX_KERNEL(attention_f32, IX_ATTENTION("kv_f32", "f32"), "order=batch", (launch<float, float, false>), nullptr)
IX_KERNEL(attention_bf16, IX_ATTENTION("kv_bf16", "f32"), "order=batch", (launch<Bf16, float, false>), parts_workspace)
IX_KERNEL(attention_bf16_y, IX_ATTENTION("kv_bf16", "bf16"), "order=batch", (launch<Bf16, Bf16, false>),
          parts_workspace)
IX_KERNEL(attention_f32_ordered, IX_ATTENTION("kv_f32", "f32"), "", (launch<float, float, true>), nullptr)
IX_KERNEL(attention_bf16_ordered, IX_ATTENTION("kv_bf16", "f32"), "", (launch<Bf16, float, true>), nullptr)
IX_KERNEL(attention_bf16_ordered_y, IX_ATTENTION("kv_bf16", "bf16"), "", (launch<Bf16, Bf16, true>), nullptr)
