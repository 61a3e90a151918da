// softcap: cap * tanh(x / cap), see docs/plan.md.
#include "cpu/act/vec_math.h"
#include "cpu/elementwise/unary.h"

namespace {
using namespace ix::cpu;
void launch(ix_stream* stream, const ix_kernel_call* call) {
  const Vf cap = splat(float(call->attrs[0].f));
  unary(stream, call, [cap](Vf x) __attribute__((always_inline)) { return cap * ix::cpu::tanh(x / cap); });
}
}  // namespace

IX_KERNEL(softcap, "softcap(x: f32[T,D], cap: f32) -> f32[T,D]", "", launch, nullptr)
