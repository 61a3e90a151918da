// act, act_mul, gated_act: see docs/plan.md. Operands and results are f32 or bf16, the arithmetic is f32.
#include "cuda/vector.h"

namespace {
using namespace ix::cuda;

__device__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }  // ±infinity gives 0 and 1

template <int N>
__device__ Vector<N> activation(int kind, const Vector<N>& x) {
  switch (kind) {
    case 0:
      return map([](float v) { return v * sigmoid(v); }, x);
    case 1:  // no cancellation where v is negative
      return map([](float v) { return 0.5f * v * erfcf(-0.70710678f * v); }, x);
    case 2:  // 0.5 v (1 + tanh z) = v sigmoid(2 z)
      return map([](float v) { return v * sigmoid(1.5957691216f * v * (1.0f + 0.044715f * v * v)); }, x);
    case 3:
      return map([](float v) { return v < 0 ? 0.0f : v; }, x);
    case 4:
      return map([](float v) { return v * sigmoid(1.702f * v); }, x);
    case 5:
      return map([](float v) { return sigmoid(v); }, x);
    default:
      return map([](float v) { return tanhf(v); }, x);
  }
}
struct Times {
  __device__ float operator()(float a, float b) const { return a * b; }
};

template <class X, class Y>
void launch_act(ix_stream* stream, const ix_kernel_call* call) {
  const Rows<X> x(call->operands[0]);
  const Rows<Y> y(call->operands[1]);
  const int columns = call->operands[1].dims[1], kind = int(call->attrs[0].i);
  for_vectors(stream, call->operands[1].dims[0], columns, width_for(columns, x, y),
              [=] __device__(auto p) { store(y[p.row] + p.column, activation(kind, p.of(x))); });
}

template <class X, class Y>
void launch_act_mul(ix_stream* stream, const ix_kernel_call* call) {
  const Rows<X> gate(call->operands[0]), up(call->operands[1]);
  const Rows<Y> y(call->operands[2]);
  const int columns = call->operands[2].dims[1], kind = int(call->attrs[0].i);
  for_vectors(stream, call->operands[2].dims[0], columns, width_for(columns, gate, up, y), [=] __device__(auto p) {
    const auto g = p.of(gate), u = p.of(up);
    store(y[p.row] + p.column, map(Times(), activation(kind, g), u));
  });
}

template <class X, class Y>
void launch_gated_act(ix_stream* stream, const ix_kernel_call* call) {
  const Rows<X> x(call->operands[0]);
  const Rows<Y> y(call->operands[1]);
  const int columns = call->operands[1].dims[1], width = columns / int(call->attrs[0].i), kind = int(call->attrs[1].i);
  for_vectors(stream, call->operands[1].dims[0], columns, width_for(width, x, y), [=] __device__(auto p) {
    const X* from = x[p.row] + p.column / width * width + p.column;
    const auto g = load<p.kCount>(from), u = load<p.kCount>(from + width);
    store(y[p.row] + p.column, map(Times(), activation(kind, g), u));
  });
}
using Bf16 = __nv_bfloat16;
}  // namespace

#define IX_ACT(X, Y) "act(x: " X "[T,D], kind: i32) -> " Y "[T,D]"
#define IX_ACT_MUL(X, Y) "act_mul(gate: " X "[T,F], up: " X "[T,F], kind: i32) -> " Y "[T,F]"
#define IX_GATED_ACT(X, Y) "gated_act(x: " X "[T,N], groups: i32, kind: i32) -> " Y "[T,M]"

IX_KERNEL(act, IX_ACT("f32", "f32"), "", (launch_act<float, float>), nullptr)
IX_KERNEL(act_to_bf16, IX_ACT("f32", "bf16"), "", (launch_act<float, Bf16>), nullptr)
IX_KERNEL(act_bf16, IX_ACT("bf16", "bf16"), "", (launch_act<Bf16, Bf16>), nullptr)
IX_KERNEL(act_mul, IX_ACT_MUL("f32", "f32"), "", (launch_act_mul<float, float>), nullptr)
IX_KERNEL(act_mul_to_bf16, IX_ACT_MUL("f32", "bf16"), "", (launch_act_mul<float, Bf16>), nullptr)
IX_KERNEL(gated_act, IX_GATED_ACT("f32", "f32"), "", (launch_gated_act<float, float>), nullptr)
IX_KERNEL(gated_act_to_bf16, IX_GATED_ACT("f32", "bf16"), "", (launch_gated_act<float, Bf16>), nullptr)
IX_KERNEL(gated_act_bf16, IX_GATED_ACT("bf16", "bf16"), "", (launch_gated_act<Bf16, Bf16>), nullptr)
