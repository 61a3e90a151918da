// Rotary position embedding of one head. `table` holds cos then sin of `half` angles.
#pragma once
#include "cpu/act/lanes.h"

namespace ix::cpu {
namespace {

// y = the head x of `width` values with its first 2 * half rotated; y = x is allowed
IX_INLINE void rope_head(const float* x, float* y, int width, const float* table, int half, bool interleaved) {
  const float *cos = table, *sin = table + half;
  if (interleaved) {
    for (int i = 0; i < half; i++) {
      const float a = x[2 * i], b = x[2 * i + 1];
      y[2 * i] = a * cos[i] - b * sin[i];
      y[2 * i + 1] = b * cos[i] + a * sin[i];
    }
  } else {
    for_lanes(half, [&](int i, int n) __attribute__((always_inline)) {
      const Vf a = load_part(x + i, n), b = load_part(x + half + i, n);
      const Vf c = load_part(cos + i, n), s = load_part(sin + i, n);
      store_part(y + i, a * c - b * s, n);
      store_part(y + half + i, b * c + a * s, n);
    });
  }
  if (y != x && width > 2 * half) memcpy(y + 2 * half, x + 2 * half, size_t(width - 2 * half) * sizeof(float));
}

}  // namespace
}  // namespace ix::cpu
