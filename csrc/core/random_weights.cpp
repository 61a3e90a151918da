#include "core/random_weights.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "core/error.h"

namespace ix {
namespace {

uint32_t name_key(uint32_t seed, std::string_view name) {
  uint32_t hash = 0x811c9dc5;  // FNV-1a
  for (const char c : name) hash = (hash ^ uint8_t(c)) * 0x01000193;
  return hash ^ seed * 0x9e3779b9;
}

// The bits of a finite value of a type with kMantissa bits after the point and the smallest normal number 2^kLeast;
// values of the types with the exponent of f32 are never below it, but for zero.
template <class T, int kMantissa, int kLeast>
T round_bits(double value) {
  constexpr int kDropped = 52 - kMantissa;
  const uint64_t bits = std::bit_cast<uint64_t>(value), magnitude = bits & ~(uint64_t(1) << 63);
  const T sign = T(T(bits >> 63) << (8 * sizeof(T) - 1));
  const uint64_t half = (uint64_t(1) << (kDropped - 1)) - 1, smallest = uint64_t(1023 + kLeast) << 52;
  if constexpr (kLeast >
                -126) {  // the bits count multiples of the smallest number; the default rounding is to nearest even
    if (magnitude < smallest)
      return sign | T(std::nearbyint(std::bit_cast<double>(magnitude) * std::ldexp(1.0, kMantissa - kLeast)));
  }
  const uint64_t rounded = (magnitude + half + (magnitude >> kDropped & 1)) >> kDropped;
  const uint64_t rebiased = rounded - (uint64_t(1023 + kLeast - 1) << kMantissa);
  return sign | T(magnitude == 0 ? 0 : rebiased);
}

}  // namespace

RandomTensor::RandomTensor(uint32_t seed, std::string_view name, const std::vector<uint64_t>& dims, const Dtype& dtype)
    : key_(name_key(seed, name)) {
  const bool matrix = dims.size() > 1, bias = !matrix && name.ends_with("bias");
  range_ = matrix ? std::sqrt(3.0 / double(dims.back())) : bias ? 0.02 : 0.1;
  centre_ = matrix || bias ? 0 : 1;
  if (dtype.name == "f32")
    fill_ = &RandomTensor::fill_as<uint32_t, 23, -126>;
  else if (dtype.name == "f16")
    fill_ = &RandomTensor::fill_as<uint16_t, 10, -14>;
  else if (dtype.name == "bf16")
    fill_ = &RandomTensor::fill_as<uint16_t, 7, -126>;
  else
    fail("IX_UNSUPPORTED_FORMAT", "there are no random weights of type %.*s", int(dtype.name.size()),
         dtype.name.data());
}

void RandomTensor::fill(void* out, uint64_t first, uint64_t count) const { (this->*fill_)(out, first, count); }

template <class T, int kMantissa, int kLeastExponent>
void RandomTensor::fill_as(void* out, uint64_t first, uint64_t count) const {
  const double centre = centre_, range = range_;
  const uint32_t start = uint32_t(first) * 0x9e3779b1 + key_;
  for (uint64_t i = 0; i < count; i++) {
    uint32_t x = start + uint32_t(i) * 0x9e3779b1;  // and the finalizer of murmur3
    x = (x ^ x >> 16) * 0x85ebca6b;
    x = (x ^ x >> 13) * 0xc2b2ae35;
    x ^= x >> 16;
    const double u = double(int32_t(x >> 8)) * 0x1p-24;
    const T bits = round_bits<T, kMantissa, kLeastExponent>(centre + (2 * u - 1) * range);
    std::memcpy(static_cast<char*>(out) + i * sizeof(T), &bits, sizeof(T));
  }
}

}  // namespace ix
