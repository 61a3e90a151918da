// Element types as checkpoints store them: a name, and how many elements share a block of how many bytes.
// The same table as lib/formats/dtypes.ts.
#pragma once
#include <cstdint>
#include <string_view>

namespace ix {

struct Dtype {
  std::string_view name;
  uint32_t block_elements, block_bytes;
};

// nullptr if there is none of that name.
const Dtype* find_dtype(std::string_view name);

// `count` elements as f32, whole blocks of the block formats.
void row_to_f32(const Dtype& dtype, const void* row, uint64_t count, float* out);

float f16_to_f32(uint16_t half);

}  // namespace ix
