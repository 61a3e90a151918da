// Dot products of small integers and of bf16, four (two) neighbours in each 32-bit lane.
//
// Weights are u8 (8-bit weights w are stored as w + 128), activations i8 in [-127, 127]. VNNI adds four products to an
// i32 lane; so does SDOT of ARM, where both sides are signed. Elsewhere products are added in pairs to i16 lanes, which
// hold `groups_per_flush` groups without overflow (VPMADDUBSW would saturate beyond that), then the pairs to i32. 8-bit
// weights do not fit: these take the weight as signed (for VPMADDUBSW with its sign moved to the activation).
#pragma once
#include "cpu/simd/vec.h"

namespace ix::cpu {
namespace {

#if defined(__AVX512VNNI__)
constexpr int kByteOffset = 128;  // what dot_add leaves in an 8-bit weight
typedef I32 DotSum;
template <int kMax>
constexpr int groups_per_flush = 8;
IX_INLINE DotSum dot_begin(I32 sum) { return sum; }
template <int kMax>
IX_INLINE DotSum dot_add(DotSum sum, I32 w, I32 x) {
  return (I32)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)w, (__m512i)x);
}
IX_INLINE I32 dot_flush(I32, DotSum sum) { return sum; }
#elif defined(__ARM_FEATURE_DOTPROD)
constexpr int kByteOffset = 0;
typedef I32 DotSum;
template <int kMax>
constexpr int groups_per_flush = 8;
IX_INLINE DotSum dot_begin(I32 sum) { return sum; }
template <int kMax>
IX_INLINE DotSum dot_add(DotSum sum, I32 w, I32 x) {
  const I32 s = kMax <= 127 ? w : w ^ set1(int32_t(0x80808080));
  return (I32)vdotq_s32((int32x4_t)sum, (int8x16_t)s, (int8x16_t)x);
}
IX_INLINE I32 dot_flush(I32, DotSum sum) { return sum; }
#else
constexpr int kByteOffset = 0;
typedef I16 DotSum;
template <int kMax>
constexpr int groups_per_flush = kMax <= 15   ? 8
                                 : kMax <= 31 ? 4
                                 : kMax <= 63 ? 2
                                              : 1;
IX_INLINE DotSum dot_begin(I32) { return I16{}; }
#if defined(__AVX2__)
template <int kMax>
IX_INLINE DotSum dot_add(DotSum sum, I32 w, I32 x) {
  if constexpr (kMax <= 63) return sum + (I16)_mm256_maddubs_epi16((__m256i)w, (__m256i)x);
  const __m256i s = (__m256i)(w ^ set1(int32_t(0x80808080)));
  return sum + (I16)_mm256_maddubs_epi16(_mm256_abs_epi8(s), _mm256_sign_epi8((__m256i)x, s));
}
IX_INLINE I32 dot_flush(I32 sum, DotSum pairs) {
  return sum + (I32)_mm256_madd_epi16((__m256i)pairs, _mm256_set1_epi16(1));
}
#else
template <int kMax>
IX_INLINE DotSum dot_add(DotSum sum, I32 w, I32 x) {
  const I16 v = bits<I16>(kMax <= 63 ? w : w ^ set1(int32_t(0x80808080))), a = bits<I16>(x);
  return sum + ((v << 8) >> 8) * ((a << 8) >> 8) + (v >> 8) * (a >> 8);
}
IX_INLINE I32 dot_flush(I32 sum, DotSum pairs) {
  const I32 p = bits<I32>(pairs);
  return sum + ((p << 16) >> 16) + (p >> 16);
}
#endif
#endif

#if defined(__AVX512BF16__)
// VDPBF16PS: both products of a lane are added to the sum. It flushes denormals and rounds unlike two FMAs.
IX_INLINE F32 dot_bf16(F32 sum, I32 w, I32 x) { return _mm512_dpbf16_ps(sum, (__m512bh)w, (__m512bh)x); }
#endif

}  // namespace
}  // namespace ix::cpu
