// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011), one counter a
// lane, and Gumbel noise from its words.
#pragma once
#include "cpu/act/vec_math.h"

namespace ix::cpu {
namespace {

// Upper halves of the 64-bit products of each lane with m.
IX_INLINE Vu multiply_high(Vu a, uint32_t m) {
#if defined(__AVX512F__)
  const __m512i factor = _mm512_set1_epi64(m);
  const __m512i even = _mm512_maskz_mul_epu32(0xFF, (__m512i)a, factor);
  const __m512i odd = _mm512_maskz_mul_epu32(0xFF, (__m512i)((__v8du)a >> 32), factor);
  return (Vu)_mm512_mask_blend_epi32(0xAAAA, (__m512i)((__v8du)even >> 32), odd);
#elif defined(__AVX2__)
  const __m256i factor = _mm256_set1_epi64x(m);
  const __m256i even = _mm256_mul_epu32((__m256i)a, factor),
                odd = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)a, 32), factor);
  return (Vu)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
#else
  Vu high;
  for (int i = 0; i < kLanes; i++) high[i] = uint32_t((uint64_t(a[i]) * m) >> 32);
  return high;
#endif
}

struct PhiloxWords {
  Vu word[4];
};

struct PhiloxKey {
  uint32_t key[2];
  uint32_t counter[3];  // words 1 .. 3 of the counter

  // Counter word 0 differs by lane.
  IX_INLINE PhiloxWords operator()(Vu c0) const {
    Vu c1 = splat_u(counter[0]), c2 = splat_u(counter[1]), c3 = splat_u(counter[2]);
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
      const Vu high0 = multiply_high(c0, 0xD2511F53u), low0 = c0 * splat_u(0xD2511F53u);
      const Vu high1 = multiply_high(c2, 0xCD9E8D57u), low1 = c2 * splat_u(0xCD9E8D57u);
      c0 = high1 ^ c1 ^ splat_u(k0);
      c1 = low1;
      c2 = high0 ^ c3 ^ splat_u(k1);
      c3 = low0;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
  }
};

// a[0], b[0], a[1], b[1], ...: the lower or the upper half of the sequence
IX_INLINE Vu zip(Vu a, Vu b, bool upper) {
  const Vi half = iota() >> 1;
  return __builtin_shuffle(a, b, half + (upper ? kLanes / 2 : 0) + (iota() & 1) * kLanes);
}

// Word j of counter c belongs to token 4c + j: vectors of neighbouring tokens.
IX_INLINE PhiloxWords by_token(const PhiloxWords& w) {
  const Vu low02 = zip(w.word[0], w.word[2], false), low13 = zip(w.word[1], w.word[3], false);
  const Vu high02 = zip(w.word[0], w.word[2], true), high13 = zip(w.word[1], w.word[3], true);
  return {{zip(low02, low13, false), zip(low02, low13, true), zip(high02, high13, false), zip(high02, high13, true)}};
}

constexpr float kMaxGumbel = 17.33f;  // -log(-log(1 - 2^-25)) = 17.3287

// -log(-log(u)) for u = (x + 0.5) * 2^-24, x = the upper 24 bits of the word. Near 1 f32 cannot hold u, but it can hold
// 1 - u: the upper half of the range goes through that.
IX_INLINE Vf gumbel(Vu word) {
  const Vi x = (Vi)(word >> 8);
  const Vi upper = x >= splat_i(1 << 23);
  const Vf small =
      (__builtin_convertvector(upper ? splat_i((1 << 24) - 1) - x : x, Vf) + splat(0.5f)) * splat(0x1p-24f);
  Vf f;
  Vf e = split_exponent(small, &f);  // u = small
  const Vi far = small > splat(0.29289323f);
  f = upper ? (far ? splat(1.0f) - (small + small) : -small) : f;  // u = 1 - small
  e = upper ? (far ? splat(-1.0f) : Vf{}) : e;
  const Vf minus_log = -fma(e, splat(0.693359375f), fma(e, splat(-2.12194440e-4f), log1p_reduced(f)));
  return -log(minus_log);
}

}  // namespace
}  // namespace ix::cpu
