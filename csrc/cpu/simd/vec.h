// Vectors of f32 and i32 for the instruction set that a file is compiled for: GCC vector types (so + - * & >> work on
// them) and the few operations that need an instruction of their own. Not a general SIMD library: what kernels use.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <utility>

#if defined(__ARM_NEON)
#include <arm_neon.h>
#elif defined(__x86_64__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // a false alarm in GCC 12's own header
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

#define IX_INLINE inline __attribute__((always_inline))
#define IX_UNROLL _Pragma("GCC unroll 32")

namespace ix::cpu {
namespace {

#if defined(__AVX512F__)
constexpr int kWidth = 16, kRegisters = 32;
#elif defined(__AVX2__)
constexpr int kWidth = 8, kRegisters = 16;
#elif defined(__ARM_NEON)
constexpr int kWidth = 4, kRegisters = 32;
#else
constexpr int kWidth = 4, kRegisters = 16;
#endif

typedef float F32 __attribute__((vector_size(kWidth * 4)));
typedef int32_t I32 __attribute__((vector_size(kWidth * 4)));
typedef uint32_t U32 __attribute__((vector_size(kWidth * 4)));
typedef int16_t I16 __attribute__((vector_size(kWidth * 4)));
typedef uint8_t BytePerLane __attribute__((vector_size(kWidth)));
typedef int8_t SignedBytePerLane __attribute__((vector_size(kWidth)));
typedef uint16_t HalfPerLane __attribute__((vector_size(kWidth * 2)));

template <class V>
IX_INLINE V load(const void* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <class V>
IX_INLINE void store(void* p, V v) {
  __builtin_memcpy(p, &v, sizeof v);
}

template <class To, class From>
IX_INLINE To bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

IX_INLINE I32 set1(int32_t x) { return I32{} + x; }
IX_INLINE F32 to_f32(I32 v) { return __builtin_convertvector(v, F32); }

// a * b + c, rounded once where the instruction set can.
#if defined(__AVX512F__)
IX_INLINE F32 set1(float x) { return _mm512_set1_ps(x); }
IX_INLINE F32 fma(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }
IX_INLINE F32 fnma(F32 a, F32 b, F32 c) { return _mm512_fnmadd_ps(a, b, c); }
IX_INLINE I32 max(I32 a, I32 b) { return (I32)_mm512_max_epi32((__m512i)a, (__m512i)b); }
IX_INLINE F32 load_f16(const void* p) { return _mm512_cvtph_ps(load<__m256i>(p)); }
IX_INLINE I32 load_u8(const void* p) { return (I32)_mm512_cvtepu8_epi32(load<__m128i>(p)); }
IX_INLINE I32 load_i8(const void* p) { return (I32)_mm512_cvtepi8_epi32(load<__m128i>(p)); }
IX_INLINE I32 round_i32(F32 v) { return (I32)_mm512_cvtps_epi32(v); }  // to nearest even
#elif defined(__AVX2__)
IX_INLINE F32 set1(float x) { return _mm256_set1_ps(x); }
IX_INLINE F32 fma(F32 a, F32 b, F32 c) { return _mm256_fmadd_ps(a, b, c); }
IX_INLINE F32 fnma(F32 a, F32 b, F32 c) { return _mm256_fnmadd_ps(a, b, c); }
IX_INLINE I32 max(I32 a, I32 b) { return (I32)_mm256_max_epi32((__m256i)a, (__m256i)b); }
IX_INLINE F32 load_f16(const void* p) { return _mm256_cvtph_ps(load<__m128i>(p)); }
IX_INLINE I32 load_u8(const void* p) { return (I32)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)p)); }
IX_INLINE I32 load_i8(const void* p) { return (I32)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p)); }
IX_INLINE I32 round_i32(F32 v) { return (I32)_mm256_cvtps_epi32(v); }
#elif defined(__ARM_NEON)
IX_INLINE F32 set1(float x) { return (F32)vdupq_n_f32(x); }
IX_INLINE F32 fma(F32 a, F32 b, F32 c) { return (F32)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
IX_INLINE F32 fnma(F32 a, F32 b, F32 c) { return (F32)vfmsq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
IX_INLINE I32 max(I32 a, I32 b) { return (I32)vmaxq_s32((int32x4_t)a, (int32x4_t)b); }
IX_INLINE F32 load_f16(const void* p) { return (F32)vcvt_f32_f16(load<float16x4_t>(p)); }
IX_INLINE I32 load_u8(const void* p) { return (I32)vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(load<uint32_t>(p))))); }
IX_INLINE I32 load_i8(const void* p) { return (I32)vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(load<uint32_t>(p))))); }
IX_INLINE I32 round_i32(F32 v) { return (I32)vcvtnq_s32_f32((float32x4_t)v); }
#else
IX_INLINE F32 set1(float x) { return F32{x, x, x, x}; }
IX_INLINE F32 fma(F32 a, F32 b, F32 c) { return a * b + c; }
IX_INLINE F32 fnma(F32 a, F32 b, F32 c) { return c - a * b; }
IX_INLINE I32 max(I32 a, I32 b) { return a > b ? a : b; }
IX_INLINE F32 load_f16(const void* p) {
  const I32 h = __builtin_convertvector(load<HalfPerLane>(p), I32);
  const I32 magnitude = (h & 0x7fff) << 13;  // as f32 with an exponent 112 too small; the product also renormalises
  const I32 finite = bits<I32>(bits<F32>(magnitude) * 0x1p112f);
  return bits<F32>((magnitude >= (0x7c00 << 13) ? magnitude | 0x7f800000 : finite) | (h & 0x8000) << 16);
}
IX_INLINE I32 load_u8(const void* p) { return __builtin_convertvector(load<BytePerLane>(p), I32); }
IX_INLINE I32 load_i8(const void* p) { return __builtin_convertvector(load<SignedBytePerLane>(p), I32); }
IX_INLINE I32 round_i32(F32 v) {  // |v| < 2^22: the sum's last bits are the integer
  return bits<I32>(v + 12582912.0f) - 0x4b400000;
}
#endif

IX_INLINE float f16_to_f32(uint16_t h) {
  alignas(64) uint16_t lanes[kWidth] = {h};
  return load_f16(lanes)[0];
}

// The bits of x as f32, rounded to the nearest even bf16; NaN stays NaN.
IX_INLINE uint32_t round_bf16(float x) {
  const uint32_t u = bits<uint32_t>(x);
  return ((u & 0x7fffffff) > 0x7f800000 ? u | 0x400000 : u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000;
}

template <int kStep, class V, size_t... i>
IX_INLINE V rotate(V v, std::index_sequence<i...>) {
  return __builtin_shufflevector(v, v, (i + kStep) % kWidth...);
}
// All lanes into one value, by halves.
template <class V, class F>
IX_INLINE auto reduce(V v, F&& f) {
  using Lanes = std::make_index_sequence<kWidth>;
  if constexpr (kWidth > 8) v = f(v, rotate<8>(v, Lanes()));
  if constexpr (kWidth > 4) v = f(v, rotate<4>(v, Lanes()));
  v = f(v, rotate<2>(v, Lanes()));
  return f(v, rotate<1>(v, Lanes()))[0];
}

IX_INLINE void prefetch(const void* p) { __builtin_prefetch(p, 0, 3); }

}  // namespace
}  // namespace ix::cpu
