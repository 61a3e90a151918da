// RMS and layer norms of one row: sums in f32, lane by lane in a fixed order. In place (y = x) is allowed.
#pragma once
#include "cpu/act/lanes.h"

namespace ix::cpu {
namespace {

IX_INLINE void scale_row(const float* x, float* y, int width, const float* w, Vf factor) {
  for_lanes(width, [&](int i, int n) __attribute__((always_inline)) {
    const Vf normed = load_part(x + i, n) * factor;
    store_part(y + i, w ? normed * load_part(w + i, n) : normed, n);
  });
}

// y = x / sqrt(mean(x^2) + eps) * w
IX_INLINE void rms_norm_row(const float* x, float* y, int width, const float* w, float eps) {
  Vf squares{};
  for_lanes(width, [&](int i, int n) __attribute__((always_inline)) {
    const Vf v = load_part(x + i, n);
    squares = fma(v, v, squares);
  });
  const float mean = sum_lanes(squares) / float(width);
  scale_row(x, y, width, w, splat(1.0f / __builtin_sqrtf(mean + eps)));
}

// y = (x - mean) / sqrt(var + eps) * w + b; the variance in a second pass, for digits
IX_INLINE void layer_norm_row(const float* x, float* y, int width, const float* w, const float* b, float eps) {
  Vf sum{}, squares{};
  for_lanes(width, [&](int i, int n) __attribute__((always_inline)) { sum = sum + load_part(x + i, n); });
  const float mean = sum_lanes(sum) / float(width);
  for_lanes(width, [&](int i, int n) __attribute__((always_inline)) {
    const Vf v = load_part(x + i, n) - splat(mean);
    squares = n == kLanes ? fma(v, v, squares) : squares + (iota() < splat_i(n) ? v * v : Vf{});
  });
  const Vf factor = splat(1.0f / __builtin_sqrtf(sum_lanes(squares) / float(width) + eps));
  for_lanes(width, [&](int i, int n) __attribute__((always_inline)) {
    Vf v = (load_part(x + i, n) - splat(mean)) * factor;
    if (w) v = v * load_part(w + i, n);
    if (b) v = v + load_part(b + i, n);
    store_part(y + i, v, n);
  });
}

}  // namespace
}  // namespace ix::cpu
