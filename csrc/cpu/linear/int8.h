// Weights in blocks of 32 times int8 activations (numerics=int8).
//
// A format F describes a block of a panel, 32 rows by 32 k, seen as u8 values in groups of four k:
//
//   kOffset, kMax        weight = scale * (value - kOffset) - minimum, value <= kMax
//   kParts, kHasMin      scales in a block (2: one for each 16 k); whether there is a minimum (else it is 0)
//   kSuper               blocks that share a head of kHead bytes; each block has kBlock bytes
//   quants(block, g, v)  values of group g of rows [v * kWidth, ...): four neighbours in k to a 32-bit lane
//   scale(head, block, part, v), minimum(head, block, v)   f32
//
// Activations are quantized in blocks of 32 with one f32 scale. For one block a tile holds
//     [8 rows][32] i8, [8] f32 scale, [8] i32 start, [8] f32 scale * sum  or  i32 start of part 1
// where start = -offset * sum(q) makes up for the unsigned weights. Per block
//     y = fma(f32(start + sum(value * q)), scale * act_scale, y), then y -= minimum * act_scale * sum(q).
#pragma once
#include "cpu/linear/job.h"
#include "cpu/simd/dot.h"

namespace ix::cpu {
namespace {

constexpr int kBlockK = 32, kGroups = 8, kVectors = kPanel / kWidth;

struct Int8Acts {
  static constexpr int kRows = 8;
  static constexpr int kScale = kRows * kBlockK, kStart = kScale + kRows * 4, kFourth = kStart + kRows * 4;
  static constexpr int kStride = kFourth + kRows * 4;
};

// A block unpacked in L1, for many tiles: itself a format.
template <class F>
struct Unpacked {
  static constexpr int kOffset = F::kOffset, kMax = F::kMax, kParts = F::kParts, kSuper = 1, kHead = 0;
  static constexpr bool kHasMin = F::kHasMin, kPacked = false;
  static constexpr int kScales = kPanel * kBlockK, kMins = kScales + kParts * kPanel * 4;
  static constexpr int kBlock = kMins + (kHasMin ? kPanel * 4 : 0);
  IX_INLINE static I32 quants(const uint8_t* block, int g, int v) {
    return load<I32>(block + g * 128 + v * kWidth * 4);
  }
  IX_INLINE static F32 scale(const uint8_t*, const uint8_t* block, int part, int v) {
    return load<F32>(block + kScales + part * 128 + v * kWidth * 4);
  }
  IX_INLINE static F32 minimum(const uint8_t*, const uint8_t* block, int v) {
    return load<F32>(block + kMins + v * kWidth * 4);
  }
};

template <class F>
constexpr size_t block_panel_bytes(int64_t cols) {
  return size_t(cols / (kBlockK * F::kSuper)) * (F::kHead + F::kSuper * F::kBlock);
}
// The head of the blocks around block b, and block b.
template <class F>
IX_INLINE const uint8_t* head_of(const uint8_t* panel, int b) {
  return panel + size_t(b / F::kSuper) * (F::kHead + F::kSuper * F::kBlock);
}
template <class F>
IX_INLINE const uint8_t* block_of(const uint8_t* panel, int b) {
  return head_of<F>(panel, b) + F::kHead + size_t(b % F::kSuper) * F::kBlock;
}

template <class F>
IX_INLINE void unpack(const uint8_t* head, const uint8_t* block, uint8_t* out) {
  using U = Unpacked<F>;
  IX_UNROLL for (int g = 0; g < kGroups; g++) {
    IX_UNROLL for (int v = 0; v < kVectors; v++) store(out + g * 128 + v * kWidth * 4, F::quants(block, g, v));
  }
  IX_UNROLL for (int v = 0; v < kVectors; v++) {
    IX_UNROLL for (int p = 0; p < F::kParts; p++)
        store(out + U::kScales + p * 128 + v * kWidth * 4, F::scale(head, block, p, v));
    if constexpr (F::kHasMin) store(out + U::kMins + v * kWidth * 4, F::minimum(head, block, v));
  }
}

// A row's block: amax / 127, round to nearest even. Infinities and NaN make the scale, and so the row's outputs, such.
template <class F>
IX_INLINE void quantize(const float* x, int row, uint8_t* o) {
  constexpr int kOffset = F::kMax == 255 ? kByteOffset : F::kOffset;
  F32 in[kVectors];
  I32 most{};
  IX_UNROLL for (int v = 0; v < kVectors; v++) {
    in[v] = load<F32>(x + v * kWidth);
    most = max(most, bits<I32>(in[v]) & 0x7fffffff);  // as integers, so that NaN is the largest
  }
  const float amax = bits<float>(int32_t(reduce(most, [](I32 a, I32 b) { return max(a, b); })));
  const F32 inverse = set1(amax > 1e-30f ? 127.0f / amax : 0.0f);
  const I32 finite = set1(amax < __builtin_inff() ? -1 : 0);
  I32 sums[2]{};
  IX_UNROLL for (int v = 0; v < kVectors; v++) {
    const I32 q = round_i32(in[v] * inverse) & finite;
    sums[v / (kVectors / 2)] += q;
    store(o + row * kBlockK + v * kWidth, __builtin_convertvector(q, SignedBytePerLane));
  }
  const auto add = [](I32 a, I32 b) { return a + b; };
  const float scale = amax / 127.0f;
  store(o + Int8Acts::kScale + row * 4, scale);
  if constexpr (F::kParts == 2) {
    store(o + Int8Acts::kStart + row * 4, int32_t(-kOffset * reduce(sums[0], add)));
    store(o + Int8Acts::kFourth + row * 4, int32_t(-kOffset * reduce(sums[1], add)));
  } else {
    const int32_t sum = reduce(sums[0] + sums[1], add);
    store(o + Int8Acts::kStart + row * 4, -kOffset * sum);
    store(o + Int8Acts::kFourth + row * 4, scale * float(sum));
  }
}

// 32 rows of weights times T rows of activations over `blocks` blocks. Where the registers do not hold all vectors of
// the panel at once they take turns within a block, so that weights are read from memory once.
template <class S, int T>
IX_INLINE void int8_kernel(const uint8_t* w, const uint8_t* a, int blocks, float* const* out, Prefetch ahead) {
  constexpr int kAtOnce = kRegisters == 32 ? (T > (S::kPacked ? 4 : 6) ? 1 : 2) : T > 2 ? 1 : 2;
  constexpr int kGroupsPerPart = kGroups / S::kParts;
  constexpr int kFlush = min(groups_per_flush<S::kMax>, kGroupsPerPart);
  F32 f[kVectors][T];
  IX_UNROLL for (int t = 0; t < T; t++) {
    IX_UNROLL for (int v = 0; v < kVectors; v++) f[v][t] = load<F32>(out[t] + v * kWidth);
  }
  for (int b = 0; b < blocks; b += S::kSuper) {
    const uint8_t* head = w;
    w += S::kHead;
    for (int i = 0; i < S::kSuper; i++, w += S::kBlock, a += Int8Acts::kStride) {
      for (int line = 0; line < ahead.lines; line++, ahead.next += 64) prefetch(ahead.next);
      _Pragma("GCC unroll 2") for (int v0 = 0; v0 < kVectors; v0 += kAtOnce) {
        if (v0) __asm__ volatile("" ::: "memory");  // or GCC keeps the first turn's broadcasts, and spills
        IX_UNROLL for (int part = 0; part < S::kParts; part++) {
          I32 sum[kAtOnce][T];
          IX_UNROLL for (int t = 0; t < T; t++) {
            const I32 start = set1(load<int32_t>(a + (part ? Int8Acts::kFourth : Int8Acts::kStart) + t * 4));
            IX_UNROLL for (int v = 0; v < kAtOnce; v++) sum[v][t] = start;
          }
          IX_UNROLL for (int g0 = part * kGroupsPerPart; g0 < (part + 1) * kGroupsPerPart; g0 += kFlush) {
            DotSum dot[kAtOnce][T];
            IX_UNROLL for (int t = 0; t < T; t++) {
              IX_UNROLL for (int v = 0; v < kAtOnce; v++) dot[v][t] = dot_begin(sum[v][t]);
            }
            IX_UNROLL for (int g = g0; g < g0 + kFlush; g++) {
              I32 q[kAtOnce];
              IX_UNROLL for (int v = 0; v < kAtOnce; v++) q[v] = S::quants(w, g, v0 + v);
              IX_UNROLL for (int t = 0; t < T; t++) {
                const I32 x = set1(load<int32_t>(a + t * kBlockK + g * 4));
                IX_UNROLL for (int v = 0; v < kAtOnce; v++) dot[v][t] = dot_add<S::kMax>(dot[v][t], q[v], x);
              }
            }
            IX_UNROLL for (int t = 0; t < T; t++) {
              IX_UNROLL for (int v = 0; v < kAtOnce; v++) sum[v][t] = dot_flush(sum[v][t], dot[v][t]);
            }
          }
          IX_UNROLL for (int v = 0; v < kAtOnce; v++) {
            const F32 scale = S::scale(head, w, part, v0 + v);
            IX_UNROLL for (int t = 0; t < T; t++) {
              const F32 act_scale = set1(load<float>(a + Int8Acts::kScale + t * 4));
              f[v0 + v][t] = fma(to_f32(sum[v][t]), scale * act_scale, f[v0 + v][t]);
            }
          }
        }
        if constexpr (S::kHasMin) {
          IX_UNROLL for (int v = 0; v < kAtOnce; v++) {
            const F32 minimum = S::minimum(head, w, v0 + v);
            IX_UNROLL for (int t = 0; t < T; t++) f[v0 + v][t] =
                fnma(minimum, set1(load<float>(a + Int8Acts::kFourth + t * 4)), f[v0 + v][t]);
          }
        }
      }
    }
  }
  IX_UNROLL for (int t = 0; t < T; t++) {
    IX_UNROLL for (int v = 0; v < kVectors; v++) store(out[t] + v * kWidth, f[v][t]);
  }
}

template <class F>
struct Int8Linear {
  // A tile of a prompt has 6 rows: on AVX-512 2 x 6 i32 and 2 x 6 f32 accumulators and operands take 29 registers.
  static constexpr int kMaxTile = Int8Acts::kRows, kFullTile = 6;
  static constexpr int kSlice = 16, kTilesPerBlock = 88;
  // Up to so many tiles unpack in registers, each anew; beyond it a slice is unpacked once for all.
  static constexpr bool kUnpackInL1 = F::kMax < 255;
  static constexpr int kWhole = kUnpackInL1 ? 3 : 1;
  static constexpr size_t kScratch = kUnpackInL1 ? align64(size_t(kSlice) * Unpacked<F>::kBlock) : 0;

  static int tile_rows(int rows) {
    const int tiles = int(divide_up(rows, rows <= 3 * kMaxTile ? kMaxTile : kFullTile));
    return int(divide_up(rows, tiles));
  }
  static int units(int cols) { return cols / kBlockK; }
  static size_t panel_bytes(int64_t cols) { return block_panel_bytes<F>(cols); }
  static size_t tile_bytes(int64_t cols) { return align64(size_t(cols / kBlockK) * Int8Acts::kStride); }
  static const uint8_t* acts_at(const uint8_t* acts, int unit, int) { return acts + size_t(unit) * Int8Acts::kStride; }

  static void pack(const Row* rows, int num, int, int from, int to, uint8_t* acts) {
    for (int b = from / kBlockK; b < to / kBlockK; b++)
      for (int r = 0; r < num; r++) quantize<F>(rows[r].x + b * kBlockK, r, acts + size_t(b) * Int8Acts::kStride);
  }

  static const uint8_t* stage(const uint8_t* panel, int unit, int units, int tiles, uint8_t* scratch) {
    if (!kUnpackInL1 || tiles <= kWhole) return head_of<F>(panel, unit);
    for (int b = unit; b < unit + units; b++)
      unpack<F>(head_of<F>(panel, b), block_of<F>(panel, b), scratch + size_t(b - unit) * Unpacked<F>::kBlock);
    return scratch;
  }

  // One tile: 8-bit weights need no help up to 6 rows, beyond it fewer of them fit the out-of-order window; nibbles
  // always gain. Several tiles: memory idles while they use the slice, so each fetches its share of the next one.
  static Prefetch ahead(const uint8_t* panel, int unit, int units, int tile, int tiles, int rows) {
    constexpr int kLines = F::kBlock / 64;
    if (tiles == 1) return {head_of<F>(panel, unit) + 4608, !kUnpackInL1 && rows <= 6 ? 0 : kLines};
    if (tiles <= kWhole) return {nullptr, 0};
    const int lines = int(divide_up(kLines, tiles));
    if (tile * lines >= kLines) return {nullptr, 0};
    return {head_of<F>(panel, unit + units) + size_t(tile) * units * lines * 64, lines};
  }

  template <int T>
  static void run(const uint8_t* slice, const uint8_t* acts, int, int units, int tiles, float* const* out, Prefetch p) {
    if constexpr (kUnpackInL1 && T <= kFullTile) {
      if (tiles > kWhole) return int8_kernel<Unpacked<F>, T>(slice, acts, units, out, p);
    }
    int8_kernel<F, T>(slice, acts, units, out, p);
  }
};

}  // namespace
}  // namespace ix::cpu
