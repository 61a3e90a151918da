// scale: see docs/plan.md.
#include "cpu/elementwise/unary.h"

namespace {
using namespace ix::cpu;
void launch(ix_stream* stream, const ix_kernel_call* call) {
  const Vf factor = splat(float(call->attrs[0].f));
  unary(stream, call, [factor](Vf x) __attribute__((always_inline)) { return x * factor; });
}
}  // namespace

IX_KERNEL(scale, "scale(x: f32[T,D], factor: f32) -> f32[T,D]", "", launch, nullptr)
