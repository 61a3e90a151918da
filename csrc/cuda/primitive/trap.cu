// A kernel that fails, for tests of what a device error does: no op has it, and no plan that the passes make.
#include "cuda/kernel.h"

namespace {
__global__ void trap_kernel() { __trap(); }

void launch(ix_stream* stream, const ix_kernel_call*) { trap_kernel<<<1, 1, 0, stream->handle>>>(); }
}  // namespace

IX_KERNEL(trap, "trap(x: f32[T,D]) -> f32[T,D]", "for=test", launch, nullptr)
