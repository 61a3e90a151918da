// layer_norm: see docs/plan.md.
#include "cpu/elementwise/rows.h"
#include "cpu/norm/norm.h"

namespace {
using namespace ix::cpu;

void launch(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor &x = call->operands[0], &w = call->operands[1], &b = call->operands[2], &y = call->operands[3];
  const int groups = int(call->attrs[0].i), width = x.dims[1] / max(1, groups);
  const float eps = float(call->attrs[1].f);
  for_rows(stream, x.dims[0] * groups, width, [&](int unit) {
    const int r = unit / groups, first = unit % groups * width;
    layer_norm_row(row(x, r) + first, row(y, r) + first, width, floats(w), floats(b), eps);
  });
}
}  // namespace

IX_KERNEL(layer_norm, "layer_norm(x: f32[T,D], w?: f32[D], b?: f32[D], groups: i32, eps: f32) -> f32[T,D]", "", launch,
          nullptr)
