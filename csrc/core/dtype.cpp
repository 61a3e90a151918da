#include "core/dtype.h"

#include <bit>

namespace ix {

static constexpr Dtype kDtypes[] = {
    {"f32", 1, 4},    {"f16", 1, 2},    {"bf16", 1, 2},     {"q8_0", 32, 34},   {"q4_0", 32, 18},   {"q4_1", 32, 20},
    {"q5_0", 32, 22}, {"q5_1", 32, 24}, {"q4_k", 256, 144}, {"q5_k", 256, 176}, {"q6_k", 256, 210},
};

const Dtype* find_dtype(std::string_view name) {
  for (const Dtype& d : kDtypes)
    if (d.name == name) return &d;
  return nullptr;
}

float f16_to_f32(uint16_t half) {
  const uint32_t sign = uint32_t(half & 0x8000) << 16, exponent = half >> 10 & 31, mantissa = half & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13);
  if (exponent) return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  const float value = float(mantissa) * 0x1p-24f;  // subnormal
  return sign ? -value : value;
}

}  // namespace ix
