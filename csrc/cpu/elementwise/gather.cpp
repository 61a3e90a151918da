// gather: chosen rows, see docs/plan.md. A row outside x gives zeros.
#include "cpu/elementwise/rows.h"

namespace {
using namespace ix::cpu;
void launch(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor &x = call->operands[0], &rows = call->operands[1], &y = call->operands[2];
  for_rows(stream, y.dims[0], y.dims[1], [&](int r) {
    const int from = ints(rows)[r];
    if (from >= 0 && from < x.dims[0]) {
      memcpy(row(y, r), row(x, from), size_t(y.dims[1]) * sizeof(float));
    } else {
      memset(row(y, r), 0, size_t(y.dims[1]) * sizeof(float));
    }
  });
}
}  // namespace

IX_KERNEL(gather, "gather(x: f32[T,D], rows: i32[S]) -> f32[S,D]", "", launch, nullptr)
