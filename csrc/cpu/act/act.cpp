// act, act_mul, gated_act: see docs/plan.md.
#include "cpu/act/activation.h"
#include "cpu/elementwise/binary.h"
#include "cpu/elementwise/unary.h"

namespace {
using namespace ix::cpu;

void launch_act(ix_stream* stream, const ix_kernel_call* call) {
  with_activation(call->attrs[0].i, [&](auto f) { unary(stream, call, f); });
}

void launch_act_mul(ix_stream* stream, const ix_kernel_call* call) {
  with_activation(call->attrs[0].i, [&](auto f) {
    binary(stream, call, [f](Vf gate, Vf up) __attribute__((always_inline)) { return f(gate) * up; });
  });
}

void launch_gated_act(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor &x = call->operands[0], &y = call->operands[1];
  const int groups = int(call->attrs[0].i), width = y.dims[1] / max(1, groups);
  with_activation(call->attrs[1].i, [&](auto f) {
    for_pieces(stream, y.dims[0] * groups, width, [&](int unit, int first, int count) {
      const int r = unit / groups, group = unit % groups;
      const float* gate = row(x, r) + 2 * width * group + first;
      float* out = row(y, r) + width * group + first;
      for_lanes(count, [&](int i, int n) __attribute__((always_inline)) {
        store_part(out + i, f(load_part(gate + i, n)) * load_part(gate + width + i, n), n);
      });
    });
  });
}
}  // namespace

IX_KERNEL(act, "act(x: f32[T,D], kind: i32) -> f32[T,D]", "", launch_act, nullptr)
IX_KERNEL(act_mul, "act_mul(gate: f32[T,F], up: f32[T,F], kind: i32) -> f32[T,F]", "", launch_act_mul, nullptr)
IX_KERNEL(gated_act, "gated_act(x: f32[T,N], groups: i32, kind: i32) -> f32[T,M]", "", launch_gated_act, nullptr)
