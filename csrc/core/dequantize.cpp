// Block formats of GGUF to f32, for weights whose parts have different formats: they are joined as f32. Rows of one
// format are packed as they are and never come here.
#include <bit>
#include <cstring>

#include "core/dtype.h"
#include "core/error.h"

namespace ix {
namespace {

float half_at(const uint8_t* p) {
  uint16_t half;
  std::memcpy(&half, p, 2);
  return f16_to_f32(half);
}
uint32_t word_at(const uint8_t* p) {
  uint32_t word;
  std::memcpy(&word, p, 4);
  return word;
}

// 32 elements: [f16 d][f16 m, if kHasMin][u32 fifth bits, if kFifth][16 bytes, low nibbles first]; without a minimum
// quants are centred.
template <bool kHasMin, bool kFifth>
void nibbles(const uint8_t* b, float* out) {
  const float d = half_at(b), m = kHasMin ? half_at(b + 2) : 0;
  const uint8_t* q = b + (kHasMin ? 4 : 2);
  const uint32_t fifth = kFifth ? word_at(q) : 0;
  if (kFifth) q += 4;
  constexpr int kCentre = kHasMin ? 0 : kFifth ? 16 : 8;
  for (int i = 0; i < 32; i++) {
    const int low = i < 16 ? q[i] & 15 : q[i - 16] >> 4;
    const int quant = (low | int(fifth >> i & 1) << 4) - kCentre;
    out[i] = float(quant) * d + m;
  }
}

void q8_0(const uint8_t* b, float* out) {
  const float d = half_at(b);
  for (int i = 0; i < 32; i++) out[i] = float(int8_t(b[2 + i])) * d;
}

// 256 elements: [f16 d][f16 dmin][12 bytes of 6-bit scales and minimums][32 bytes of fifth bits, if kFifth][128 bytes
// of nibbles].
template <bool kFifth>
void k_nibbles(const uint8_t* b, float* out) {
  const float d = half_at(b), dmin = half_at(b + 2);
  const uint8_t *s = b + 4, *fifth = b + 16, *q = b + (kFifth ? 48 : 16);
  for (int part = 0; part < 8; part++) {
    const int scale = part < 4 ? s[part] & 63 : (s[part + 4] & 15) | s[part - 4] >> 6 << 4;
    const int minimum = part < 4 ? s[part + 4] & 63 : s[part + 4] >> 4 | s[part] >> 6 << 4;
    for (int i = 0; i < 32; i++) {
      const int low = part % 2 ? q[part / 2 * 32 + i] >> 4 : q[part / 2 * 32 + i] & 15;
      const int quant = kFifth ? low | (fifth[i] >> part & 1) << 4 : low;
      out[part * 32 + i] = d * float(scale) * float(quant) - dmin * float(minimum);
    }
  }
}

// 256 elements: [128 bytes of low nibbles][64 bytes of upper pairs of bits][16 i8 scales][f16 d].
void q6_k(const uint8_t* b, float* out) {
  const float d = half_at(b + 208);
  for (int i = 0; i < 256; i++) {
    const int half = i / 128, quarter = i % 128 / 32, l = i % 32;
    const uint8_t low = b[half * 64 + quarter % 2 * 32 + l], high = b[128 + half * 32 + l];
    const int quant = ((quarter < 2 ? low & 15 : low >> 4) | (high >> (2 * quarter) & 3) << 4) - 32;
    out[i] = d * float(int8_t(b[192 + i / 16])) * float(quant);
  }
}

using Block = void (*)(const uint8_t*, float*);
constexpr struct {
  std::string_view dtype;
  Block block;
} kBlocks[] = {
    {"q8_0", q8_0},
    {"q4_0", nibbles<false, false>},
    {"q4_1", nibbles<true, false>},
    {"q5_0", nibbles<false, true>},
    {"q5_1", nibbles<true, true>},
    {"q4_k", k_nibbles<false>},
    {"q5_k", k_nibbles<true>},
    {"q6_k", q6_k},
};

}  // namespace

void row_to_f32(const Dtype& dtype, const void* row, uint64_t count, float* out) {
  const auto* bytes = static_cast<const uint8_t*>(row);
  if (dtype.name == "f32") {
    std::memcpy(out, row, count * 4);
    return;
  }
  if (dtype.name == "f16") {
    for (uint64_t i = 0; i < count; i++) out[i] = half_at(bytes + 2 * i);
    return;
  }
  if (dtype.name == "bf16") {
    for (uint64_t i = 0; i < count; i++)
      out[i] = std::bit_cast<float>(uint32_t(bytes[2 * i] | bytes[2 * i + 1] << 8) << 16);
    return;
  }
  for (const auto& [name, block] : kBlocks) {
    if (dtype.name != name) continue;
    for (uint64_t i = 0; i < count; i += dtype.block_elements, bytes += dtype.block_bytes) block(bytes, out + i);
    return;
  }
  fail("IX_UNSUPPORTED_FORMAT", "%.*s cannot be converted to f32 while loading", int(dtype.name.size()),
       dtype.name.data());
}

}  // namespace ix
