// concat: columns of a, then columns of b, see docs/plan.md.
#include "cpu/elementwise/rows.h"

namespace {
using namespace ix::cpu;
void launch(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor &a = call->operands[0], &b = call->operands[1], &y = call->operands[2];
  for_rows(stream, y.dims[0], y.dims[1], [&](int r) {
    memcpy(row(y, r), row(a, r), size_t(a.dims[1]) * sizeof(float));
    memcpy(row(y, r) + a.dims[1], row(b, r), size_t(b.dims[1]) * sizeof(float));
  });
}
}  // namespace

IX_KERNEL(concat, "concat(a: f32[T,D], b: f32[T,E]) -> f32[T,F]", "", launch, nullptr)
