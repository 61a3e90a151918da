// rms_norm, add_rms_norm: see docs/plan.md.
#include "cpu/elementwise/rows.h"
#include "cpu/norm/norm.h"

namespace {
using namespace ix::cpu;

void launch(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor &x = call->operands[0], &w = call->operands[1], &y = call->operands[2];
  const int groups = int(call->attrs[0].i), width = x.dims[1] / max(1, groups);
  const float eps = float(call->attrs[1].f);
  for_rows(stream, x.dims[0] * groups, width, [&](int unit) {
    const int r = unit / groups, first = unit % groups * width;
    rms_norm_row(row(x, r) + first, row(y, r) + first, width, floats(w), eps);
  });
}

void launch_add(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor &a = call->operands[0], &b = call->operands[1], &w = call->operands[2];
  const ix_tensor &sum = call->operands[3], &y = call->operands[4];
  const int width = a.dims[1];
  const float eps = float(call->attrs[0].f);
  for_rows(stream, a.dims[0], width, [&](int r) {
    const float *pa = row(a, r), *pb = row(b, r);
    float* ps = row(sum, r);
    for_lanes(width, [&](int i, int n) __attribute__((always_inline)) {
      store_part(ps + i, load_part(pa + i, n) + load_part(pb + i, n), n);
    });
    rms_norm_row(ps, row(y, r), width, floats(w), eps);
  });
}
}  // namespace

IX_KERNEL(rms_norm, "rms_norm(x: f32[T,D], w?: f32[D], groups: i32, eps: f32) -> f32[T,D]", "", launch, nullptr)
IX_KERNEL(add_rms_norm, "add_rms_norm(a: f32[T,D], b: f32[T,D], w: f32[D], eps: f32) -> f32[T,D], f32[T,D]", "",
          launch_add, nullptr)
