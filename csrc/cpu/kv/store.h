// Storing one head's K and V of some tokens. Tokens whose slots follow each other in a block go together: the cache is
// written in whole lines then, where a token alone touches one word of many lines.
#pragma once
#include "cpu/kv/cache.h"

namespace ix::cpu {
namespace {

constexpr int kStoreTokens = 32;  // at most so many tokens in one call of store_head

// `count` tokens that stand in neighbouring slots, from `offset` in `block`
IX_INLINE void store_run(const KvCache<1>& cache, int head, int block, int offset, int count, const float* k,
                         int64_t ldk, const float* v, int64_t ldv) {
  float* to_k = reinterpret_cast<float*>(cache.k(block, head)) + offset;
  float* to_v = reinterpret_cast<float*>(cache.v(block, head)) + int64_t(offset) * cache.width;
  for (int d = 0; d < cache.width; d++)
    for (int i = 0; i < count; i++) to_k[int64_t(d) * cache.tokens + i] = k[i * ldk + d];
  for (int i = 0; i < count; i++)
    memcpy(to_v + int64_t(i) * cache.width, v + i * ldv, size_t(cache.width) * sizeof(float));
}

IX_INLINE void store_run(const KvCache<2>& cache, int head, int block, int offset, int count, const float* k,
                         int64_t ldk, const float* v, int64_t ldv) {
  alignas(64) Word rows[kStoreTokens][kMaxHeadWidth / 2 + kLanes];
  const int width = cache.width;
  for (int i = 0; i < count; i++) to_bf16_row(k + i * ldk, rows[i], width);
  Word* to_k = cache.k(block, head) + offset;
  for (int p = 0; p < width / 2; p++)
    for (int i = 0; i < count; i++) to_k[int64_t(p) * cache.tokens + i] = rows[i][p];

  typedef uint16_t __attribute__((may_alias)) Half;
  for (int i = 0; i < count; i++) to_bf16_row(v + i * ldv, rows[i], width);
  Word* to_v = cache.v(block, head);
  for (int i = 0; i < count;) {
    Word* pair = to_v + int64_t((offset + i) / 2) * width;
    const Half* first = reinterpret_cast<const Half*>(rows[i]);
    if ((offset + i) % 2 == 0 && i + 1 < count) {
      const Half* second = reinterpret_cast<const Half*>(rows[i + 1]);
      for (int d = 0; d < width; d++) pair[d] = Word(first[d]) | Word(second[d]) << 16;
      i += 2;
    } else {  // half a pair: its other half may belong to a thread that writes at the same time
      Half* half = reinterpret_cast<Half*>(pair) + (offset + i) % 2;
      for (int d = 0; d < width; d++) half[2 * d] = first[d];
      i++;
    }
  }
}

// Token i's K and V of this head are k + i * ldk and v + i * ldv; a slot outside the cache stores nothing.
template <int kPair>
IX_INLINE void store_head(const KvCache<kPair>& cache, int head, const int32_t* slots, int num_tokens, const float* k,
                          int64_t ldk, const float* v, int64_t ldv) {
  for (int i = 0; i < num_tokens;) {
    const int block = slots[i] / cache.tokens, offset = slots[i] % cache.tokens;
    int count = 1;
    while (i + count < num_tokens && offset + count < cache.tokens && slots[i + count] == slots[i] + count) count++;
    if (slots[i] < 0) {
      count = 1;
    } else if (block < cache.blocks) {
      store_run(cache, head, block, offset, count, k + i * ldk, ldk, v + i * ldv, ldv);
    }
    i += count;
  }
}

// body(first token, number of tokens) for pieces of at most kStoreTokens
template <class F>
IX_INLINE void for_token_pieces(ix_stream* stream, int num_tokens, F&& body) {
  const int per = max(1, min(kStoreTokens, (num_tokens + stream->num_threads - 1) / stream->num_threads));
  parallel(stream, (num_tokens + per - 1) / per,
           [&](int chunk, int) { body(chunk * per, min(per, num_tokens - chunk * per)); });
}

}  // namespace
}  // namespace ix::cpu
