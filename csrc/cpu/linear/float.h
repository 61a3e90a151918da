// Weights taken as f32 (numerics=f32: exact weights, f32 activations, one chain of FMAs over K) or as bf16 pairs
// (numerics=bf16: activations rounded to bf16).
//
// A source S describes the weights:
//   kUnit, kUnitBytes        k in a unit, the step of the chain's loop (2 where neighbours in k share a lane, whole
//   blocks
//                            of block formats); bytes of its 32 rows
//   kSlice                   units in a slice for many tiles
//   kActUnit, kActWords      k that are packed together and their 32-bit words per row; pack_unit writes them
//   step(f, w, v0, a, tile)  adds a unit to V vectors of rows, from v0 on, times T rows of activations
// Activations of a tile are [unit][word][tile].
#pragma once
#include "cpu/linear/int8.h"

namespace ix::cpu {
namespace {

template <int V, int T>
using Sums = F32[V][T];

struct F32Source {
  static constexpr int kUnit = 1, kUnitBytes = kPanel * 4, kSlice = 128, kActUnit = 1, kActWords = 1;
  IX_INLINE static void pack_unit(const float* x, int, uint32_t* a, int) { *a = bits<uint32_t>(*x); }
  template <int V, int T>
  IX_INLINE static void step(Sums<V, T>& f, const uint8_t* w, int v0, const uint32_t* a, int) {
    F32 x[V];
    IX_UNROLL for (int v = 0; v < V; v++) x[v] = load<F32>(w + (v0 + v) * kWidth * 4);
    IX_UNROLL for (int t = 0; t < T; t++) {
      IX_UNROLL for (int v = 0; v < V; v++) f[v][t] = fma(x[v], set1(load<float>(a + t)), f[v][t]);
    }
  }
  static float weight(const uint8_t* panel, int k, int row) {
    return load<float>(panel + size_t(k) * kUnitBytes + row * 4);
  }
};

struct F16Source {
  static constexpr int kUnit = 1, kUnitBytes = kPanel * 2, kSlice = 256, kActUnit = 1, kActWords = 1;
  IX_INLINE static void pack_unit(const float* x, int, uint32_t* a, int) { *a = bits<uint32_t>(*x); }
  template <int V, int T>
  IX_INLINE static void step(Sums<V, T>& f, const uint8_t* w, int v0, const uint32_t* a, int) {
    F32 x[V];
    IX_UNROLL for (int v = 0; v < V; v++) x[v] = load_f16(w + (v0 + v) * kWidth * 2);
    IX_UNROLL for (int t = 0; t < T; t++) {
      IX_UNROLL for (int v = 0; v < V; v++) f[v][t] = fma(x[v], set1(load<float>(a + t)), f[v][t]);
    }
  }
  static float weight(const uint8_t* panel, int k, int row) {
    return f16_to_f32(load<uint16_t>(panel + size_t(k) * kUnitBytes + row * 2));
  }
};

// Pairs of k; an odd K ends in a pair of which one half is zero.
struct Bf16Source {
  static constexpr int kUnit = 2, kUnitBytes = kPanel * 4, kSlice = 128, kActUnit = 2, kActWords = 2;
  IX_INLINE static void pack_unit(const float* x, int num, uint32_t* a, int tile) {
    a[0] = bits<uint32_t>(x[0]);
    a[tile] = num > 1 ? bits<uint32_t>(x[1]) : 0;
  }
  template <int V, int T>
  IX_INLINE static void step(Sums<V, T>& f, const uint8_t* w, int v0, const uint32_t* a, int tile) {
    F32 even[V], odd[V];
    IX_UNROLL for (int v = 0; v < V; v++) {
      const I32 pair = load<I32>(w + (v0 + v) * kWidth * 4);
      even[v] = bits<F32>(pair << 16);
      odd[v] = bits<F32>(pair & set1(int32_t(0xffff0000)));
    }
    IX_UNROLL for (int t = 0; t < T; t++) {
      IX_UNROLL for (int v = 0; v < V; v++) f[v][t] = fma(even[v], set1(load<float>(a + t)), f[v][t]);
    }
    IX_UNROLL for (int t = 0; t < T; t++) {
      IX_UNROLL for (int v = 0; v < V; v++) f[v][t] = fma(odd[v], set1(load<float>(a + tile + t)), f[v][t]);
    }
  }
  static float weight(const uint8_t* panel, int k, int row) {
    return bits<float>(uint32_t(load<uint16_t>(panel + size_t(k / 2) * kUnitBytes + row * 4 + k % 2 * 2)) << 16);
  }
};

// The same with activations rounded to bf16.
#if defined(__AVX512BF16__)
struct Bf16DotSource : Bf16Source {
  static constexpr int kSlice = 256, kActWords = 1;
  IX_INLINE static void pack_unit(const float* x, int num, uint32_t* a, int) {
    *a = round_bf16(x[0]) >> 16 | (num > 1 ? round_bf16(x[1]) : 0);
  }
  template <int V, int T>
  IX_INLINE static void step(Sums<V, T>& f, const uint8_t* w, int v0, const uint32_t* a, int) {
    I32 pair[V];
    IX_UNROLL for (int v = 0; v < V; v++) pair[v] = load<I32>(w + (v0 + v) * kWidth * 4);
    IX_UNROLL for (int t = 0; t < T; t++) {
      IX_UNROLL for (int v = 0; v < V; v++) f[v][t] = dot_bf16(f[v][t], pair[v], set1(load<int32_t>(a + t)));
    }
  }
};
#else
struct Bf16DotSource : Bf16Source {
  IX_INLINE static void pack_unit(const float* x, int num, uint32_t* a, int tile) {
    a[0] = round_bf16(x[0]);
    a[tile] = num > 1 ? round_bf16(x[1]) : 0;
  }
};
#endif

// A block format, dequantized in registers.
template <class F>
struct BlockSource {
  static constexpr int kUnit = kBlockK * F::kSuper, kUnitBytes = F::kHead + F::kSuper * F::kBlock;
  static constexpr int kSlice = max(1, 128 / kUnit), kActUnit = 1, kActWords = 1;
  IX_INLINE static void pack_unit(const float* x, int, uint32_t* a, int) { *a = bits<uint32_t>(*x); }

  // Calls f(k, w) for the k of a unit in order; w is kWidth rows, exactly as the format defines them.
  template <int V, class Use>
  IX_INLINE static void weights(const uint8_t* head, int v0, Use&& use) {
    const uint8_t* block = head + F::kHead;
    for (int k0 = 0; k0 < kUnit; k0 += kBlockK, block += F::kBlock) {
      IX_UNROLL for (int part = 0; part < F::kParts; part++) {
        // weight = scale * value + base: the product has at most 24 bits, so it is exact, and there is one rounding.
        F32 scale[V], base[V];
        IX_UNROLL for (int v = 0; v < V; v++) {
          scale[v] = F::scale(head, block, part, v0 + v);
          if constexpr (F::kHasMin)
            base[v] = -F::minimum(head, block, v0 + v);
          else
            base[v] = scale[v] * float(-F::kOffset);
        }
        _Pragma("GCC unroll 1") for (int g = part * kGroups / F::kParts; g < (part + 1) * kGroups / F::kParts; g++) {
          I32 q[V];
          IX_UNROLL for (int v = 0; v < V; v++) q[v] = F::quants(block, g, v0 + v);
          IX_UNROLL for (int j = 0; j < 4; j++) {
            IX_UNROLL for (int v = 0; v < V; v++) {
              use(k0 + g * 4 + j, v, fma(to_f32((q[v] >> (8 * j)) & 255), scale[v], base[v]));
            }
          }
        }
      }
    }
  }
  template <int V, int T>
  IX_INLINE static void step(Sums<V, T>& f, const uint8_t* w, int v0, const uint32_t* a, int tile) {
    weights<V>(w, v0, [&](int k, int v, F32 x) {
      IX_UNROLL for (int t = 0; t < T; t++) f[v][t] = fma(x, set1(load<float>(a + k * tile + t)), f[v][t]);
    });
  }
};

// T rows of activations against `units` units of a panel. Where the registers do not hold all vectors of the panel
// these take turns.
template <class S, int T>
IX_INLINE void float_kernel(const uint8_t* w, const uint32_t* a, int tile, int units, float* const* out,
                            Prefetch ahead) {
  constexpr int kMost = kRegisters * 3 / 4;
  constexpr int kAtOnce = kVectors * T <= kMost ? kVectors : 2 * T <= kMost ? 2 : 1;
  for (int v0 = 0; v0 < kVectors; v0 += kAtOnce) {
    F32 f[kAtOnce][T];
    IX_UNROLL for (int t = 0; t < T; t++) {
      IX_UNROLL for (int v = 0; v < kAtOnce; v++) f[v][t] = load<F32>(out[t] + (v0 + v) * kWidth);
    }
    const uint8_t* wp = w;
    const uint32_t* ap = a;
    for (int i = 0; i < units; i++, wp += S::kUnitBytes, ap += S::kUnit / S::kActUnit * S::kActWords * tile) {
      if (ahead.lines) {
        prefetch(ahead.next);
        ahead.next += 64;
      }
      S::template step<kAtOnce, T>(f, wp, v0, ap, tile);
    }
    IX_UNROLL for (int t = 0; t < T; t++) {
      IX_UNROLL for (int v = 0; v < kAtOnce; v++) store(out[t] + (v0 + v) * kWidth, f[v][t]);
    }
    ahead.lines = 0;
  }
}

template <class S>
struct FloatLinear {
  static constexpr int kMaxTile = kRegisters == 32 ? 12 : 6, kFullTile = kMaxTile;
  static constexpr int kSlice = S::kSlice, kTilesPerBlock = 44, kWhole = 1;
  static constexpr size_t kScratch = 0;

  static int tile_rows(int rows) { return int(divide_up(rows, divide_up(rows, kMaxTile))); }
  static int units(int cols) { return int(divide_up(cols, S::kUnit)); }
  static size_t panel_bytes(int64_t cols) { return size_t(divide_up(cols, S::kUnit)) * S::kUnitBytes; }
  static size_t tile_bytes(int64_t cols) { return align64(act_words(divide_up(cols, S::kActUnit)) * 4 * kMaxTile); }
  static const uint8_t* acts_at(const uint8_t* acts, int unit, int tile) {
    return acts + act_words(unit * (S::kUnit / S::kActUnit)) * 4 * tile;
  }

  static void pack(const Row* rows, int num, int tile, int from, int to, uint8_t* acts) {
    for (int r = 0; r < num; r++) {
      uint32_t* a = reinterpret_cast<uint32_t*>(acts) + act_words(from / S::kActUnit) * tile + r;
      for (int k = from; k < to; k += S::kActUnit, a += S::kActWords * tile)
        S::pack_unit(rows[r].x + k, to - k, a, tile);
    }
  }

  static const uint8_t* stage(const uint8_t* panel, int unit, int, int, uint8_t*) {
    return panel + size_t(unit) * S::kUnitBytes;
  }

  // One tile: prefetching only costs. More: the first ones fetch the next slice, a line of each unit at a time.
  static Prefetch ahead(const uint8_t* panel, int unit, int units, int tile, int tiles, int) {
    if (tiles == 1 || tile * 64 >= S::kUnitBytes) return {nullptr, 0};
    return {panel + size_t(unit + units) * S::kUnitBytes + size_t(tile) * units * 64, 1};
  }

  template <int T>
  static void run(const uint8_t* slice, const uint8_t* acts, int tile, int units, int, float* const* out, Prefetch p) {
    float_kernel<S, T>(slice, reinterpret_cast<const uint32_t*>(acts), tile, units, out, p);
  }

 private:
  static size_t act_words(int64_t units) { return size_t(units) * S::kActWords; }
};

// Block formats: one tile dequantizes in registers; for more a slice is dequantized to f32 in L1.
template <class F>
struct DequantizedLinear : FloatLinear<BlockSource<F>> {
  using S = BlockSource<F>;
  static constexpr size_t kScratch = size_t(S::kSlice) * S::kUnit * kPanel * 4;

  static const uint8_t* stage(const uint8_t* panel, int unit, int units, int tiles, uint8_t* scratch) {
    const uint8_t* w = panel + size_t(unit) * S::kUnitBytes;
    if (tiles == 1) return w;
    for (int u = 0; u < units; u++)
      for (int v0 = 0; v0 < kVectors; v0++)
        S::template weights<1>(w + size_t(u) * S::kUnitBytes, v0, [&](int k, int, F32 x) {
          store(scratch + ((size_t(u) * S::kUnit + k) * kPanel + v0 * kWidth) * 4, x);
        });
    return scratch;
  }
  template <int T>
  static void run(const uint8_t* slice, const uint8_t* acts, int tile, int units, int tiles, float* const* out,
                  Prefetch p) {
    const uint32_t* a = reinterpret_cast<const uint32_t*>(acts);
    if (tiles == 1)
      float_kernel<S, T>(slice, a, tile, units, out, p);
    else
      float_kernel<F32Source, T>(slice, a, tile, units * S::kUnit, out, p);
  }
  static Prefetch ahead(const uint8_t*, int, int, int, int, int) { return {nullptr, 0}; }
};

}  // namespace
}  // namespace ix::cpu
