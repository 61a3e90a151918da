// One vector of floats of the instruction set this object is compiled for, and the operations that GCC's vector
// extensions lack. Everything has internal linkage: an object for AVX-512 must not lend a function to a plain one.
#pragma once
#include <stdint.h>
#include <string.h>
#if defined(__ARM_NEON)
#include <arm_neon.h>
#elif defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ix::cpu {
namespace {

#define IX_INLINE inline __attribute__((always_inline))

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

typedef float Vf __attribute__((vector_size(kLanes * 4)));
typedef int32_t Vi __attribute__((vector_size(kLanes * 4)));
typedef uint32_t Vu __attribute__((vector_size(kLanes * 4)));
typedef float VfAny __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));
typedef uint32_t VuAny __attribute__((vector_size(kLanes * 4), aligned(4), may_alias));

IX_INLINE Vf splat(float x) { return x - Vf{}; }
IX_INLINE Vi splat_i(int32_t x) { return x - Vi{}; }
IX_INLINE Vu splat_u(uint32_t x) { return x - Vu{}; }

IX_INLINE Vf load(const float* p) { return *reinterpret_cast<const VfAny*>(p); }
IX_INLINE void store(float* p, Vf x) { *reinterpret_cast<VfAny*>(p) = x; }
IX_INLINE Vu load_u(const void* p) { return *static_cast<const VuAny*>(p); }
IX_INLINE void store_u(void* p, Vu x) { *static_cast<VuAny*>(p) = x; }

// 0, 1, 2, ...
IX_INLINE Vi iota() {
  Vi r;
  for (int i = 0; i < kLanes; i++) r[i] = i;
  return r;
}

// The first `n` lanes, zeros above them; n >= kLanes is a full load, n <= 0 touches nothing.
IX_INLINE Vu load_u_first(const void* p, int n) {
#if defined(__AVX512F__)
  const __mmask16 mask = n >= 16 ? 0xFFFF : n <= 0 ? 0 : __mmask16((1u << n) - 1);
  return (Vu)_mm512_maskz_loadu_epi32(mask, p);
#elif defined(__AVX2__)
  return (Vu)_mm256_maskload_epi32(static_cast<const int*>(p), (__m256i)(iota() < splat_i(n)));
#else
  Vu r{};
  for (int i = 0; i < kLanes && i < n; i++) r[i] = static_cast<const uint32_t*>(p)[i];
  return r;
#endif
}
IX_INLINE Vf load_first(const float* p, int n) { return (Vf)load_u_first(p, n); }

IX_INLINE void store_first(float* p, Vf x, int n) {
#if defined(__AVX512F__)
  const __mmask16 mask = n >= 16 ? 0xFFFF : n <= 0 ? 0 : __mmask16((1u << n) - 1);
  _mm512_mask_storeu_ps(p, mask, (__m512)x);
#elif defined(__AVX2__)
  _mm256_maskstore_ps(p, (__m256i)(iota() < splat_i(n)), (__m256)x);
#else
  for (int i = 0; i < kLanes && i < n; i++) p[i] = x[i];
#endif
}

// a * b + c, rounded once where the instruction set can
IX_INLINE Vf fma(Vf a, Vf b, Vf c) {
#if defined(__AVX512F__)
  return (Vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
  return (Vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__ARM_NEON)
  return (Vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}

// a > b ? a : b, so b where either is NaN
IX_INLINE Vf max(Vf a, Vf b) {
#if defined(__AVX512F__)
  return (Vf)_mm512_maskz_max_ps(0xFFFF, (__m512)a, (__m512)b);
#elif defined(__AVX2__)
  return (Vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
  return a > b ? a : b;
#endif
}
IX_INLINE Vf min(Vf a, Vf b) { return a < b ? a : b; }
IX_INLINE float max(float a, float b) { return a > b ? a : b; }
IX_INLINE int max(int a, int b) { return a > b ? a : b; }
IX_INLINE int min(int a, int b) { return a < b ? a : b; }
IX_INLINE int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }
IX_INLINE int64_t min(int64_t a, int64_t b) { return a < b ? a : b; }

IX_INLINE Vf sqrt(Vf x) {
#if defined(__AVX512F__)
  return (Vf)_mm512_maskz_sqrt_ps(0xFFFF, (__m512)x);
#elif defined(__AVX2__)
  return (Vf)_mm256_sqrt_ps((__m256)x);
#else
  for (int i = 0; i < kLanes; i++) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}

// Sums and maxima over the lanes, always in the same order.
IX_INLINE float sum_lanes(Vf x) {
  float part[kLanes];
  memcpy(part, &x, sizeof x);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; i++) part[i] += part[i + width];
  return part[0];
}
IX_INLINE float max_lanes(Vf x) {
  float part[kLanes];
  memcpy(part, &x, sizeof x);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; i++) part[i] = max(part[i], part[i + width]);
  return part[0];
}

// body(first, lanes) over n elements, vector by vector; lanes is kLanes except in the last one. The two calls are
// inlined separately, so that the masks of the tail cost the full vectors nothing.
template <class F>
IX_INLINE void for_lanes(int n, F&& body) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, kLanes);
  if (i < n) body(i, n - i);
}
IX_INLINE Vf load_part(const float* p, int n) { return n == kLanes ? load(p) : load_first(p, n); }
IX_INLINE void store_part(float* p, Vf x, int n) {
  if (n == kLanes) {
    store(p, x);
  } else {
    store_first(p, x, n);
  }
}

}  // namespace
}  // namespace ix::cpu
