// One layer of a paged KV cache, as docs/plan.md lays it out. Both formats are arrays of 32-bit words: a word is one
// f32 (kPair 1) or two bf16 that stand together (kPair 2). Per KV head K is [D/kPair][tokens] words, then V
// [tokens/kPair][D].
#pragma once
#include "cpu/act/lanes.h"
#include "cpu/kernel.h"

namespace ix::cpu {
namespace {

typedef uint32_t __attribute__((may_alias)) Word;

constexpr int kMaxHeadWidth = 256;

template <int kPair>
struct KvCache {
  char* data;
  int64_t block_stride;  // bytes
  int blocks, tokens, heads, width;

  explicit KvCache(const ix_tensor& t)
      : data(static_cast<char*>(t.data)),
        block_stride(t.stride),
        blocks(t.dims[0]),
        tokens(t.dims[1]),
        heads(t.dims[2]),
        width(t.dims[3]) {}
  int64_t words() const { return int64_t(width) * tokens / kPair; }  // of K; as many of V
  Word* k(int block, int head) const {
    return reinterpret_cast<Word*>(data + block * block_stride) + 2 * words() * head;
  }
  Word* v(int block, int head) const { return k(block, head) + words(); }
};

// Rounds to nearest even; NaN stays NaN. The result is in the low half of each lane.
IX_INLINE Vu to_bf16(Vf x) {
  const Vu u = (Vu)x;
  const Vu rounded = (u + splat_u(0x7FFF) + ((u >> 16) & splat_u(1))) >> 16;
  return (Vu)(x == x ? (Vi)rounded : splat_i(0x7FC0));
}

// y needs room for n rounded up to whole vectors
IX_INLINE void to_bf16_row(const float* x, void* y, int n) {
  char* out = static_cast<char*>(y);
  for_lanes(n, [&](int i, int count) __attribute__((always_inline)) {
    const Vf v = load_part(x + i, count);
#if defined(__AVX512BF16__)
    const __m256bh half = _mm512_cvtneps_pbh((__m512)v);
#else
    typedef uint16_t Half __attribute__((vector_size(kLanes * 2)));
    const Half half = __builtin_convertvector(to_bf16(v), Half);
#endif
    memcpy(out + 2 * i, &half, sizeof half);
  });
}

}  // namespace
}  // namespace ix::cpu
