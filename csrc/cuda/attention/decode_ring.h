// The shared memory of decode attention: how many stages there are, where K and V of a chunk lie in one.
#pragma once
#include <stdint.h>

namespace ix::cuda {

constexpr int kWarps = 4;  // each has its own ring

// Stages of a chunk's K and V for each warp, then a sheet on which the warps add up their sums.
template <int kWidth>
struct Ring {
  static constexpr int kPieces = kWidth / 8;  // of 16 bytes in a row
  // Rows in shared memory: whole lines are swizzled, others padded, so that 8 lanes' 16 bytes lie in different banks
  static constexpr bool kWhole = kPieces % 8 == 0;
  static constexpr int kPitchK = kWhole ? kPieces : (kPieces + 3) / 8 * 8 + 4, kPitchV = kWhole ? kPieces : kPieces | 1;
  static constexpr int kBytesK = 16 * kPitchK * 16, kStage = kBytesK + 16 * kPitchV * 16;
  static constexpr int kStages = kWidth == 64 ? 6 : kWidth == 80 ? 4 : 3;
  static constexpr int kTokens = 8;  // under way: at most kStages + 1
  static constexpr int kBlocksPerSm = kWidth > 128 ? 1 : 2;
  static constexpr int kSheet = kWarps * 4 * kWidth;  // floats
  static constexpr int kBytes = kWarps * kStages * kStage + kSheet * 4;

  // Bytes from the start of a stage to what a lane (g, t) reads: piece 4c + t of position g + 8r of K, piece 8h + g of
  // position 2t + r % 2 + r / 2 * 8 of V
  struct Reads {
    uint32_t even, odd, value;
    __device__ Reads(int g, int t)
        : even(g * kPitchK * 16 + (kWhole ? t * 16 ^ (g & 1) * 64 : t * 16)),
          odd(kWhole ? even ^ 64 : even + 64),
          value(kBytesK + 2 * t * kPitchV * 16 + (kWhole ? g ^ 2 * t : g) * 16) {}
    __device__ uint32_t k(int c, int r) const { return (c % 2 ? odd : even) + c / 2 * 128 + r * 8 * kPitchK * 16; }
    __device__ uint32_t v(int h, int r) const { return value + h * 128 + (r % 2 + r / 2 * 8) * kPitchV * 16; }
  };
  // A lane copies piece r * 32 + lane of the 16 positions.
  static constexpr int kAtOnce = kWhole ? 32 / kPieces : 1;  // positions that a warp copies at once
  struct Writes {
    int position;
    uint32_t key, value;
    __device__ explicit Writes(int lane)
        : position(lane / kPieces),
          key(position * kPitchK * 16 + (lane % kPieces ^ (position & 1) << 2) * 16),
          value(kBytesK + position * kPitchV * 16 + (lane % kPieces ^ (position & 6)) * 16) {}
    __device__ int at(int r, int lane) const { return kWhole ? r * kAtOnce + position : (r * 32 + lane) / kPieces; }
    __device__ uint32_t k(int r, int lane) const {
      if constexpr (kWhole) return (key ^ (r * kAtOnce & 1) * 64) + r * kAtOnce * kPitchK * 16;
      return (at(r, lane) * kPitchK + (r * 32 + lane) % kPieces) * 16;
    }
    __device__ uint32_t v(int r, int lane) const {
      if constexpr (kWhole) return (value ^ (r * kAtOnce & 6) * 16) + r * kAtOnce * kPitchV * 16;
      return kBytesK + (at(r, lane) * kPitchV + (r * 32 + lane) % kPieces) * 16;
    }
  };
};

}  // namespace ix::cuda
