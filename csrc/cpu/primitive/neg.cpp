// neg: see docs/plan.md.
#include "cpu/act/vec_math.h"
#include "cpu/elementwise/unary.h"

namespace {
using namespace ix::cpu;
void launch(ix_stream* stream, const ix_kernel_call* call) {
  unary(stream, call, [](Vf x) __attribute__((always_inline)) { return -x; });
}
}  // namespace

IX_KERNEL(neg, "neg(x: f32[T,D]) -> f32[T,D]", "", launch, nullptr)
