// moe_combine: weighted sum over the slots of a token, in slot order, see docs/plan.md.
#include "cpu/elementwise/rows.h"

namespace {
using namespace ix::cpu;
void launch(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor &x = call->operands[0], &weights = call->operands[1], &y = call->operands[2];
  const int width = y.dims[1], slots = weights.dims[1];
  for_rows(stream, y.dims[0], x.dims[1], [&](int t) {
    const float *px = row(x, t), *w = row(weights, t);
    float* py = row(y, t);
    for_lanes(width, [&](int i, int n) __attribute__((always_inline)) {
      Vf sum{};
      for (int j = 0; j < slots; j++) sum = fma(load_part(px + int64_t(j) * width + i, n), splat(w[j]), sum);
      store_part(py + i, sum, n);
    });
  });
}
}  // namespace

IX_KERNEL(moe_combine, "moe_combine(y: f32[T,M], weights: f32[T,k]) -> f32[T,D]", "", launch, nullptr)
