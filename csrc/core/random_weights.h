// Weights that lie in no file: each value is a function of seed, tensor name and place. The definition, word for word,
// is lib/formats/random-values.ts.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace ix {

class RandomTensor {
 public:
  // `dtype` is f32, f16 or bf16; throws IX_UNSUPPORTED_FORMAT for others.
  RandomTensor(uint32_t seed, std::string_view name, const std::vector<uint64_t>& dims, const Dtype& dtype);
  // Elements [first, first + count), as the type stores them.
  void fill(void* out, uint64_t first, uint64_t count) const;

 private:
  template <class T, int kMantissa, int kLeastExponent>
  void fill_as(void* out, uint64_t first, uint64_t count) const;

  uint32_t key_;
  double centre_, range_;
  void (RandomTensor::*fill_)(void*, uint64_t, uint64_t) const;
};

}  // namespace ix
