// The one product of attention: a panel of a KV block, `steps` rows of words, times the same number of values of each
// of T query rows. For scores the lanes are tokens and the steps dimensions; for the output the lanes are dimensions
// and the steps tokens. Every output is one chain over the steps in order, so the number of rows changes no bit.
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
constexpr int kSplit = 256;       // positions that are normalised together
constexpr int kLd = kSplit + 32;  // words from one row of a tile to the next: room for one panel more, no power of two

typedef float __attribute__((may_alias)) FloatAny;

// f[t][r] += word r times the values of row t at step i
template <int kPair, int T>
IX_INLINE void accumulate(Vf (*f)[2], Vu w0, Vu w1, const Word* a, int i) {
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

// Up to kMaxPanels panels run side by side: with few rows one alone would wait for its own sums, and the values of
// several dimensions lie next to each other in memory. `lanes` of at most kPanelLanes are read (kPartial) or exactly
// kPanelLanes; every y gets kPanelLanes values a row. `next`: what will be read after each panel, for prefetching.
constexpr int kMaxPanels = 4;
struct PanelArgs {
  const Word *w[kMaxPanels], *next[kMaxPanels];
  float* y[kMaxPanels];
  int64_t stride;
  const Word* a;
  int steps, lanes;
  bool more;  // adds to y
};

template <int kPair, int T, int kPanels, bool kPartial>
__attribute__((noinline)) void panel(const PanelArgs& p) {
  Vf f[kPanels][T][2];
#pragma GCC unroll 16
  for (int j = 0; j < kPanels; j++)
#pragma GCC unroll 16
    for (int t = 0; t < T; t++) {
      f[j][t][0] = p.more ? load(p.y[j] + t * kLd) : Vf{};
      f[j][t][1] = p.more ? load(p.y[j] + t * kLd + kLanes) : Vf{};
    }
  const Word *w[kPanels], *next[kPanels], *a = p.a;
#pragma GCC unroll 4
  for (int j = 0; j < kPanels; j++) w[j] = p.w[j], next[j] = p.next[j];
  const int64_t stride = p.stride;
  const int steps = p.steps, lanes = p.lanes;
  int64_t at = 0;
  for (int i = 0; i < steps; i++, at += stride) {
#pragma GCC unroll 4
    for (int j = 0; j < kPanels; j++) {
      const Word* here = w[j] + at;
      __builtin_prefetch(next[j] + at, 0, 2);
      if constexpr (kPanelLanes > 16) __builtin_prefetch(next[j] + at + 16, 0, 2);
      const Vu w0 = kPartial ? load_u_first(here, lanes) : load_u(here);
      const Vu w1 = kPartial ? load_u_first(here + kLanes, lanes - kLanes) : load_u(here + kLanes);
      accumulate<kPair, T>(f[j], w0, w1, a, i);
    }
  }
#pragma GCC unroll 16
  for (int j = 0; j < kPanels; j++)
#pragma GCC unroll 16
    for (int t = 0; t < T; t++) {
      store(p.y[j] + t * kLd, f[j][t][0]);
      store(p.y[j] + t * kLd + kLanes, f[j][t][1]);
    }
}

// The panels for a number of rows; full[k] runs 2^k of them, NULL where the sums would not fit the registers.
struct PanelSet {
  typedef void (*Fn)(const PanelArgs&);
  Fn full[3], partial;

  // The panels that `lanes` fall into, the last one partial if need be; place(i, &w, &next, &y) says where panel i is.
  template <class F>
  IX_INLINE void run(PanelArgs args, int lanes, F&& place) const {
    const int n = lanes / kPanelLanes;
    for (int i = 0; i < n;) {
      const int k = full[2] && n - i >= 4 ? 2 : full[1] && n - i >= 2 ? 1 : 0;
      for (int j = 0; j < 1 << k; j++) place(i + j, &args.w[j], &args.next[j], &args.y[j]);
      full[k](args);
      i += 1 << k;
    }
    args.lanes = lanes % kPanelLanes;
    if (args.lanes == 0) return;
    place(n, &args.w[0], &args.next[0], &args.y[0]);
    partial(args);
  }
};

template <int kPair, int T = kTileRows>
inline PanelSet pick_panels(int rows) {
  if constexpr (T > 1) {
    if (rows < T) return pick_panels<kPair, T - 1>(rows);
  }
  PanelSet set{{panel<kPair, T, 1, false>, nullptr, nullptr}, panel<kPair, T, 1, true>};
  if constexpr (2 * T <= kTileRows) set.full[1] = panel<kPair, T, 2, false>;
  if constexpr (4 * T <= kTileRows) set.full[2] = panel<kPair, T, 4, false>;
  return set;
}

}  // namespace
}  // namespace ix::cpu
