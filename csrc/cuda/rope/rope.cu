// rope_table, rope: see docs/plan.md.
#include "cuda/kernel.h"

namespace {
using namespace ix::cuda;

void launch_table(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor* t = call->operands;
  const int32_t *positions = static_cast<const int32_t*>(t[0].data), *variant = static_cast<const int32_t*>(t[1].data);
  const Floats inv_freq(t[2]), y(t[4]);
  const float* factor = static_cast<const float*>(t[3].data);
  const int half = t[4].dims[1] / 2, variants = t[2].dims[0];
  for_elements(stream, t[4].dims[0], half, [=] __device__(int r, int c) {
    const int p = max(0, min(variant[r], variants - 1));
    float sine, cosine;
    sincosf(float(positions[r]) * inv_freq[p][c], &sine, &cosine);
    y[r][c] = cosine * factor[p];
    y[r][half + c] = sine * factor[p];
  });
}

void launch_rope(ix_stream* stream, const ix_kernel_call* call) {
  const Floats x(call->operands[0]), table(call->operands[1]), y(call->operands[2]);
  const int columns = call->operands[0].dims[1], width = columns / int(call->attrs[0].i),
            half = call->operands[1].dims[1] / 2;
  const bool interleaved = call->attrs[1].i != 0;
  for_elements(stream, call->operands[0].dims[0], columns, [=] __device__(int r, int c) {
    const int d = c % width;
    float v = x(r, c);
    if (d < 2 * half) {
      const bool second = interleaved ? d % 2 : d >= half;
      const int angle = interleaved ? d / 2 : d % half, apart = interleaved ? 1 : half;
      const float other = x(r, second ? c - apart : c + apart);
      v = v * table(r, angle) + (second ? other : -other) * table(r, half + angle);
    }
    y[r][c] = v;
  });
}
}  // namespace

IX_KERNEL(rope_table, "rope_table(positions: i32[T], row: i32[T], inv_freq: f32[P,H], factor: f32[P]) -> f32[T,N]", "",
          launch_table, nullptr)
IX_KERNEL(rope, "rope(x: f32[T,N], table: f32[T,R], heads: i32, interleaved: i32) -> f32[T,N]", "", launch_rope,
          nullptr)
