// act, act_mul, gated_act: see docs/plan.md.
#include "cuda/kernel.h"

namespace {
using namespace ix::cuda;

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ float activation(int kind, float x) {
  switch (kind) {
    case 0:
      return x * sigmoid(x);
    case 1:
      return 0.5f * x * erfcf(-0.70710678f * x);  // no cancellation where x is negative
    case 2:
      return x * sigmoid(1.5957691216f * x * (1.0f + 0.044715f * x * x));  // 0.5 x (1 + tanh z) = x sigmoid(2 z)
    case 3:
      return x < 0 ? 0.0f : x;
    case 4:
      return x * sigmoid(1.702f * x);
    case 5:
      return sigmoid(x);
    default:
      return tanhf(x);
  }
}

void launch_act(ix_stream* stream, const ix_kernel_call* call) {
  const Floats x(call->operands[0]), y(call->operands[1]);
  const int kind = int(call->attrs[0].i);
  for_elements(stream, call->operands[1].dims[0], call->operands[1].dims[1],
               [=] __device__(int r, int c) { y[r][c] = activation(kind, x[r][c]); });
}

void launch_act_mul(ix_stream* stream, const ix_kernel_call* call) {
  const Floats gate(call->operands[0]), up(call->operands[1]), y(call->operands[2]);
  const int kind = int(call->attrs[0].i);
  for_elements(stream, call->operands[2].dims[0], call->operands[2].dims[1],
               [=] __device__(int r, int c) { y[r][c] = activation(kind, gate[r][c]) * up[r][c]; });
}

void launch_gated_act(ix_stream* stream, const ix_kernel_call* call) {
  const Floats x(call->operands[0]), y(call->operands[1]);
  const int width = call->operands[1].dims[1] / int(call->attrs[0].i), kind = int(call->attrs[1].i);
  for_elements(stream, call->operands[1].dims[0], call->operands[1].dims[1], [=] __device__(int r, int c) {
    const float* gate = x[r] + c / width * width + c;
    y[r][c] = activation(kind, gate[0]) * gate[width];
  });
}
}  // namespace

IX_KERNEL(act, "act(x: f32[T,D], kind: i32) -> f32[T,D]", "", launch_act, nullptr)
IX_KERNEL(act_mul, "act_mul(gate: f32[T,F], up: f32[T,F], kind: i32) -> f32[T,F]", "", launch_act_mul, nullptr)
IX_KERNEL(gated_act, "gated_act(x: f32[T,N], groups: i32, kind: i32) -> f32[T,M]", "", launch_gated_act, nullptr)
