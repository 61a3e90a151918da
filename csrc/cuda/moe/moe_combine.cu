// moe_combine: weighted sum over the slots of a token, in slot order, see docs/plan.md.
#include "cuda/vector.h"

namespace {
using namespace ix::cuda;

void launch(ix_stream* stream, const ix_kernel_call* call) {
  const Floats x(call->operands[0]), weights(call->operands[1]), y(call->operands[2]);
  const int slots = call->operands[1].dims[1], width = call->operands[2].dims[1];
  for_vectors(stream, call->operands[2].dims[0], width, width_for(width, x, y), [=] __device__(auto at) {
    Vector<at.kCount> sum{};
#pragma unroll 4
    for (int j = 0; j < slots; j++) {
      const float weight = weights(at.row, j);
      sum = map([=](float v, float s) { return fmaf(v, weight, s); },
                load<at.kCount>(x[at.row] + int64_t(j) * width + at.column), sum);
    }
    store(y[at.row] + at.column, sum);
  });
}
}  // namespace

IX_KERNEL(moe_combine, "moe_combine(y: f32[T,M], weights: f32[T,k]) -> f32[T,D]", "", launch, nullptr)
