// mul: see docs/plan.md.
#include "cpu/elementwise/binary.h"

namespace {
using namespace ix::cpu;
void launch(ix_stream* stream, const ix_kernel_call* call) {
  binary(stream, call, [](Vf a, Vf b) __attribute__((always_inline)) { return a * b; });
}
}  // namespace

IX_KERNEL(mul, "mul(a: f32[T,D], b: f32[T,D]) -> f32[T,D]", "", launch, nullptr)
