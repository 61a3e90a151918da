// What the packed block formats share. For 32 k of a panel:
//   nibbles      4 x [32 rows][4 bytes]: byte j of load i holds k 8 i + j (low) and 8 i + 4 + j (high), so that a load,
//                a shift and two ANDs make two operands of a dot product
//   fifth bits   [32 rows] u32: bit g of byte j belongs to k 4 g + j
// and what it takes to make them from ggml's blocks (little endian).
#pragma once
#include "cpu/linear/int8.h"

namespace ix::cpu {
namespace {

IX_INLINE I32 nibbles(const uint8_t* block, int g, int v) {
  const I32 both = load<I32>(block + g / 2 * 128 + v * kWidth * 4);
  return (g % 2 ? both >> 4 : both) & set1(0x0f0f0f0f);
}
IX_INLINE I32 fifth_bits(const uint8_t* plane, int g, int v) {
  const I32 high = load<I32>(plane + v * kWidth * 4);
  return (g <= 4 ? high << (4 - g) : high >> (g - 4)) & set1(0x10101010);
}

IX_INLINE uint32_t word(const uint8_t* p) { return load<uint32_t>(p); }
IX_INLINE void copy16(uint8_t* to, const uint8_t* from) { store(to, load<uint16_t>(from)); }
IX_INLINE uint32_t spread_bits(uint32_t four) { return (four & 15) * 0x00204081u & 0x01010101u; }  // one to a byte

// values(g): the values of group g in the low nibbles of four bytes.
template <class F>
IX_INLINE void pack_nibbles(uint8_t* block, int row, F&& values) {
  for (int i = 0; i < 4; i++) {
    const uint32_t low = values(2 * i) & 0x0f0f0f0fu, high = values(2 * i + 1) & 0x0f0f0f0fu;
    store(block + i * 128 + row * 4, low | high << 4);
  }
}
// bits_of(g): the bits of group g at the bottom of four bytes.
template <class F>
IX_INLINE void pack_fifth_bits(uint8_t* plane, int row, F&& bits_of) {
  uint32_t all = 0;
  for (int g = 0; g < kGroups; g++) all |= (bits_of(g) & 0x01010101u) << g;
  store(plane + row * 4, all);
}

// The 6-bit fields of q4_K and q5_K: 0-3 stand in the low bits of bytes 0-3 (scales) and 4-7 (minimums); 4-7 have their
// low nibbles in bytes 8-11 and their upper two bits atop of the former.
IX_INLINE uint8_t scale_of_k(const uint8_t* p, int s) {
  return s < 4 ? p[s] & 63 : (p[s + 4] & 15) | (p[s - 4] >> 6) << 4;
}
IX_INLINE uint8_t minimum_of_k(const uint8_t* p, int s) {
  return s < 4 ? p[s + 4] & 63 : (p[s + 4] >> 4) | (p[s] >> 6) << 4;
}

}  // namespace
}  // namespace ix::cpu
