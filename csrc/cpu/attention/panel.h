// The one product of attention: a panel of a KV block, `steps` rows of words, times the same number of values of each of
// T query rows. For scores the lanes are tokens and the steps dimensions; for the output the lanes are dimensions and the
// steps tokens. Every output is one chain over the steps in order, so the number of rows changes no bit.
#pragma once
#include "cpu/kv/cache.h"

namespace ix::cpu {
namespace {

#if defined(__AVX512F__)
constexpr int kTileRows = 12;  // 24 accumulators, 2 words, broadcasts
#elif defined(__AVX2__)
constexpr int kTileRows = 6;
#else
constexpr int kTileRows = 4;
#endif
constexpr int kPanelLanes = 2 * kLanes;
constexpr int kSplit = 256;             // positions that are normalised together
constexpr int kLd = kSplit + 32;        // words from one row of a tile to the next: room for one panel more, no power of two

typedef float __attribute__((may_alias)) FloatAny;

// f[t][r] += word r times the values of row t at step i
template <int kPair, int T>
IX_INLINE void accumulate(Vf (&f)[T][2], Vu w0, Vu w1, const Word* a, int i) {
  if constexpr (kPair == 1) {
#pragma GCC unroll 16
    for (int t = 0; t < T; t++) {
      const Vf x = splat(reinterpret_cast<const FloatAny*>(a)[t * kLd + i]);
      f[t][0] = fma((Vf)w0, x, f[t][0]);
      f[t][1] = fma((Vf)w1, x, f[t][1]);
    }
  } else {
#if defined(__AVX512BF16__)
#pragma GCC unroll 16
    for (int t = 0; t < T; t++) {
      const __m512bh x = (__m512bh)splat_u(a[t * kLd + i]);
      f[t][0] = (Vf)_mm512_dpbf16_ps((__m512)f[t][0], (__m512bh)w0, x);
      f[t][1] = (Vf)_mm512_dpbf16_ps((__m512)f[t][1], (__m512bh)w1, x);
    }
#else  // the same two products in f32; the values are f32 too
    const FloatAny* values = reinterpret_cast<const FloatAny*>(a) + 2 * i;
    const Vf even0 = (Vf)(w0 << 16), even1 = (Vf)(w1 << 16);
#pragma GCC unroll 16
    for (int t = 0; t < T; t++) {
      const Vf x = splat(values[t * kLd]);
      f[t][0] = fma(even0, x, f[t][0]);
      f[t][1] = fma(even1, x, f[t][1]);
    }
    const Vf odd0 = (Vf)(w0 & splat_u(0xFFFF0000u)), odd1 = (Vf)(w1 & splat_u(0xFFFF0000u));
#pragma GCC unroll 16
    for (int t = 0; t < T; t++) {
      const Vf x = splat(values[t * kLd + 1]);
      f[t][0] = fma(odd0, x, f[t][0]);
      f[t][1] = fma(odd1, x, f[t][1]);
    }
#endif
  }
}

// Arguments of a panel: `lanes` of at most kPanelLanes are read (kPartial) or exactly kPanelLanes; y gets kPanelLanes
// values a row. `ahead`: words from here to what will be read next, for prefetching.
struct PanelArgs {
  const Word* w;
  int64_t stride;
  const Word* a;
  int steps, lanes;
  bool more;  // adds to y
  float* y;
  int64_t ahead;
};

template <int kPair, int T, bool kPartial>
__attribute__((noinline)) void panel(const PanelArgs& p) {
  Vf f[T][2];
#pragma GCC unroll 16
  for (int t = 0; t < T; t++) {
    f[t][0] = p.more ? load(p.y + t * kLd) : Vf{};
    f[t][1] = p.more ? load(p.y + t * kLd + kLanes) : Vf{};
  }
  const Word *w = p.w, *a = p.a;
  const int64_t stride = p.stride, ahead = p.ahead;
  const int steps = p.steps, lanes = p.lanes;
  for (int i = 0; i < steps; i++, w += stride) {
    __builtin_prefetch(w + ahead);
    if constexpr (kPanelLanes > 16) __builtin_prefetch(w + ahead + 16);
    const Vu w0 = kPartial ? load_u_first(w, lanes) : load_u(w);
    const Vu w1 = kPartial ? load_u_first(w + kLanes, lanes - kLanes) : load_u(w + kLanes);
    accumulate<kPair, T>(f, w0, w1, a, i);
  }
#pragma GCC unroll 16
  for (int t = 0; t < T; t++) {
    store(p.y + t * kLd, f[t][0]);
    store(p.y + t * kLd + kLanes, f[t][1]);
  }
}

typedef void (*PanelFn)(const PanelArgs&);

template <int kPair, int T = kTileRows>
inline PanelFn pick_panel(int rows, bool partial) {
  if constexpr (T > 1) {
    if (rows < T) return pick_panel<kPair, T - 1>(rows, partial);
  }
  return partial ? panel<kPair, T, true> : panel<kPair, T, false>;
}

}  // namespace
}  // namespace ix::cpu
