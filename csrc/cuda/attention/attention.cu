// attention: causal attention over the paged cache, see docs/plan.md. A block for each token and part of a KV head's
// query heads: its warps take positions in turn, with a running softmax each, and merge at the end. Not here: reuse of
// K and V among a prompt's tokens.
#include "cuda/attention/decode.h"
#include "cuda/kv/cache.h"

namespace {
using namespace ix::cuda;
constexpr int kSteps = 4;  // positions that a warp has under way

struct Problem {
  Floats q, y;
  Ints table;
  const int32_t *seq_start, *seq_context, *seq_row;
  const float* sinks;
  int sequences, heads, group, parts, window;  // query heads of a KV head, the parts that they fall into
  float scale, softcap;
};

// kHeads query heads at most; a lane holds the columns lane, lane + 32, ...
template <class T, int kHeads, int kColumns, int kWarps>
__global__ void __launch_bounds__(32 * kWarps) attention_kernel(Problem p, KvCache<T> cache) {
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
      p.y[token][head * width + d] = sum / all;
    }
  }
}

// Where there are few tokens, many warps share one's context.
template <class T, int kHeads, int kColumns, int kWarps>
void run(ix_stream* stream, Problem p, const KvCache<T>& cache, int tokens) {
  p.parts = divide_up(p.group, kHeads);
  const size_t shared = size_t(kWarps) * kHeads * (cache.width + 2) * sizeof(float);
  attention_kernel<T, kHeads, kColumns, kWarps>
      <<<dim3(tokens, cache.heads * p.parts), 32 * kWarps, shared, stream->handle>>>(p, cache);
}

template <class T, int kHeads>
void with_width(ix_stream* stream, const Problem& p, const KvCache<T>& cache, int tokens) {
  const bool few = tokens <= 32;
  if (cache.width <= 64)
    return few ? run<T, kHeads, 2, 16>(stream, p, cache, tokens) : run<T, kHeads, 2, 4>(stream, p, cache, tokens);
  if (cache.width <= 128)
    return few ? run<T, kHeads, 4, 16>(stream, p, cache, tokens) : run<T, kHeads, 4, 4>(stream, p, cache, tokens);
  run<T, kHeads, 8, 4>(stream, p, cache, tokens);
}

template <class T>
void launch(ix_stream* stream, const ix_kernel_call* call) {
  if constexpr (sizeof(T) == 2) {
    if (decode_attention(stream, call)) return;
  }
  const ix_tensor* t = call->operands;
  const KvCache<T> cache(t[1]);
  const int heads = int(call->attrs[0].i);
  const Problem p{Floats(t[0]),
                  Floats(t[7]),
                  Ints(t[5]),
                  static_cast<const int32_t*>(t[2].data),
                  static_cast<const int32_t*>(t[3].data),
                  static_cast<const int32_t*>(t[4].data),
                  static_cast<const float*>(t[6].data),
                  t[3].dims[0],
                  heads,
                  heads / cache.heads,
                  1,
                  int(call->attrs[2].i),
                  float(call->attrs[1].f),
                  float(call->attrs[3].f)};
  const int tokens = t[0].dims[0];
  if (tokens <= 0 || p.sequences <= 0) return;
  if (p.group == 1) return with_width<T, 1>(stream, p, cache, tokens);
  if (p.group == 2) return with_width<T, 2>(stream, p, cache, tokens);
  with_width<T, 4>(stream, p, cache, tokens);
}
}  // namespace

#define IX_ATTENTION(KV)                                                                                \
  "attention(q: f32[T,N], cache: " KV                                                                   \
  "[B,L,K,D], seq_start: i32[R], seq_context: i32[R], seq_row: i32[R], block_table: i32[P,C], sinks?: " \
  "f32[H], heads: i32, scale: f32, window: i32, softcap: f32) -> f32[T,N]"
IX_KERNEL(attention_f32, IX_ATTENTION("kv_f32"), "", launch<float>, nullptr)
IX_KERNEL(attention_bf16, IX_ATTENTION("kv_bf16"), "", launch<__nv_bfloat16>,
          [](const ix_kernel_call* call, int) { return decode_attention_workspace(call); })
