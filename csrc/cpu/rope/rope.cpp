// rope_table, rope: see docs/plan.md.
#include "cpu/rope/rope.h"

#include <cmath>

#include "cpu/elementwise/rows.h"

namespace {
using namespace ix::cpu;

void launch_table(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor &positions = call->operands[0], &variant = call->operands[1], &inv_freq = call->operands[2];
  const ix_tensor &factor = call->operands[3], &y = call->operands[4];
  const int half = y.dims[1] / 2;
  constexpr int kCost = 16;  // a sine and a cosine cost about as much as that many plain elements
  for_rows(stream, y.dims[0], half * kCost, [&](int t) {
    const int p = max(0, min(ints(variant)[t], inv_freq.dims[0] - 1));
    const float *freq = row(inv_freq, p), position = float(ints(positions)[t]), scale = floats(factor)[p];
    float* out = row(y, t);
    for (int i = 0; i < half; i++) {
      const float angle = position * freq[i];
      out[i] = cosf(angle) * scale;
      out[half + i] = sinf(angle) * scale;
    }
  });
}

void launch_rope(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor &x = call->operands[0], &table = call->operands[1], &y = call->operands[2];
  const int heads = int(call->attrs[0].i), width = x.dims[1] / max(1, heads);
  const bool interleaved = call->attrs[1].i != 0;
  for_rows(stream, x.dims[0], x.dims[1], [&](int t) {
    for (int h = 0; h < heads; h++)
      rope_head(row(x, t) + h * width, row(y, t) + h * width, width, row(table, t), table.dims[1] / 2, interleaved);
  });
}
}  // namespace

IX_KERNEL(rope_table, "rope_table(positions: i32[T], row: i32[T], inv_freq: f32[P,H], factor: f32[P]) -> f32[T,N]", "",
          launch_table, nullptr)
IX_KERNEL(rope, "rope(x: f32[T,N], table: f32[T,R], heads: i32, interleaved: i32) -> f32[T,N]", "", launch_rope,
          nullptr)
