// exp, tanh, the Gaussian tail and friends over vectors, without branches, within about 2 ulp of the exact value.
// The polynomials are minimax fits (Remez) of our own over the reduced ranges. Not for f64.
#pragma once
#include "cpu/act/lanes.h"

namespace ix::cpu {
namespace {

constexpr float kInf = __builtin_inff();

// NaN stays NaN, overflow gives infinity, results below the normal range are denormal or zero; exp(0) is exactly 1.
IX_INLINE Vf exp(Vf x) {
  x = x < splat(-104.0f) ? splat(-104.0f) : x;  // written so that NaN passes
  x = x > splat(89.0f) ? splat(89.0f) : x;
  const Vf magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer, in the low bits
  const Vf shifted = fma(x, splat(1.44269504f), magic);
  const Vf nf = shifted - magic;
  const Vf r = fma(nf, splat(2.12194440e-4f), fma(nf, splat(-0.693359375f), x));
  Vf p = splat(0.0013814467f);
  p = fma(p, r, splat(0.008368781f));
  p = fma(p, r, splat(0.041668393f));
  p = fma(p, r, splat(0.1666652f));
  p = fma(p, r, splat(0.49999994f));
  p = fma(r * r, p, r) + splat(1.0f);
#if defined(__AVX512F__)
  return (Vf)_mm512_maskz_scalef_ps(0xFFFF, (__m512)p, (__m512)nf);
#else
  const Vi n = (Vi)shifted - (Vi)magic, half = n >> 1;  // 2^n in two steps: n may lie outside the exponent's range
  return p * (Vf)((half + splat_i(127)) << 23) * (Vf)((n - half + splat_i(127)) << 23);
#endif
}

IX_INLINE Vf abs(Vf x) { return (Vf)((Vi)x & splat_i(0x7FFFFFFF)); }
IX_INLINE Vf with_sign_of(Vf magnitude, Vf x) { return (Vf)((Vi)magnitude | ((Vi)x & splat_i(INT32_MIN))); }

IX_INLINE Vf tanh(Vf x) {
  const Vf a = abs(x), z = x * x;
  Vf p = splat(-0.0057165907f);
  p = fma(p, z, splat(0.020650199f));
  p = fma(p, z, splat(-0.053743385f));
  p = fma(p, z, splat(0.1333149f));
  p = fma(p, z, splat(-0.33333284f));
  const Vf near = fma(p * z, x, x);
  const Vf far = with_sign_of(splat(1.0f) - splat(2.0f) / (exp(a + a) + splat(1.0f)), x);
  return a < splat(0.625f) ? near : far;
}

IX_INLINE Vf sigmoid(Vf x) { return splat(1.0f) / (splat(1.0f) + exp(-x)); }

// x * Phi(x). The tail Phi(-|x|) is computed itself (not as a difference from 1), so that negative x keep their digits.
IX_INLINE Vf gelu_erf(Vf x) {
  const Vf y = abs(x) * splat(0.70710678f);
  const Vf t = splat(2.0f) / (splat(2.0f) + y);
  Vf p = splat(-0.055051226f);  // erfc(y) * exp(y^2) as a polynomial of t
  p = fma(p, t, splat(0.26390275f));
  p = fma(p, t, splat(-0.4414769f));
  p = fma(p, t, splat(0.22119012f));
  p = fma(p, t, splat(0.01707831f));
  p = fma(p, t, splat(0.18124956f));
  p = fma(p, t, splat(0.2497936f));
  p = fma(p, t, splat(0.2810984f));
  p = fma(p, t, splat(0.28222138f));
  p = fma(p, t, splat(-6.0114044e-06f));
  const Vf tail = splat(0.5f) * p * exp(splat(-0.5f) * x * x);
  const Vf product = abs(x) * tail;
  return (x > splat(0.0f) ? x : Vf{}) - (tail > splat(0.0f) ? product : Vf{}) + (x == x ? Vf{} : x);
}

// log(1 + f) for f in [sqrt(1/2) - 1, sqrt(2) - 1]
IX_INLINE Vf log1p_reduced(Vf f) {
  Vf p = splat(0.0674665f);
  p = fma(p, f, splat(-0.11675654f));
  p = fma(p, f, splat(0.11888166f));
  p = fma(p, f, splat(-0.12405588f));
  p = fma(p, f, splat(0.14219552f));
  p = fma(p, f, splat(-0.16667996f));
  p = fma(p, f, splat(0.2000212f));
  p = fma(p, f, splat(-0.2500001f));
  p = fma(p, f, splat(0.33333313f));
  const Vf z = f * f;
  return f + fma(z * f, p, splat(-0.5f) * z);
}

// x = (1 + f) * 2^e with f in the range of log1p_reduced; x is a positive normal number
IX_INLINE Vf split_exponent(Vf x, Vf* f) {
  const Vi e = ((Vi)x - splat_i(0x3F3504F3)) >> 23;
  *f = (Vf)((Vi)x - (e << 23)) - splat(1.0f);
  return __builtin_convertvector(e, Vf);
}
IX_INLINE Vf log(Vf x) {
  Vf f;
  const Vf e = split_exponent(x, &f);
  return fma(e, splat(0.693359375f), fma(e, splat(-2.12194440e-4f), log1p_reduced(f)));
}

}  // namespace
}  // namespace ix::cpu
