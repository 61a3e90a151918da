// reduce_sum, reduce_max, softmax: along a row, see docs/plan.md. A NaN anywhere in a row shows in its result.
#include "cpu/act/vec_math.h"
#include "cpu/elementwise/rows.h"

namespace {
using namespace ix::cpu;

float row_sum(const float* x, int cols) {
  Vf sum{};
  for_lanes(cols, [&](int i, int n) __attribute__((always_inline)) { sum = sum + load_part(x + i, n); });
  return sum_lanes(sum);
}

float row_max(const float* x, int cols) {
  float top = -kInf;
  for (int i = 0; i < cols; i++) top = x[i] > top || x[i] != x[i] ? x[i] : top;
  return top;
}

void launch_sum(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor &x = call->operands[0], &y = call->operands[1];
  for_rows(stream, x.dims[0], x.dims[1], [&](int r) { *row(y, r) = row_sum(row(x, r), x.dims[1]); });
}

void launch_max(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor &x = call->operands[0], &y = call->operands[1];
  for_rows(stream, x.dims[0], x.dims[1], [&](int r) { *row(y, r) = row_max(row(x, r), x.dims[1]); });
}

void launch_softmax(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor &x = call->operands[0], &y = call->operands[1];
  const int cols = x.dims[1];
  for_rows(stream, x.dims[0], cols, [&](int r) {
    const float* px = row(x, r);
    float* py = row(y, r);
    const float top = row_max(px, cols);
    const Vf shift = splat(top == -kInf ? 0.0f : top);
    for_lanes(cols, [&](int i, int n) __attribute__((always_inline)) {
      store_part(py + i, ix::cpu::exp(load_part(px + i, n) - shift), n);
    });
    const Vf total = splat(row_sum(py, cols));
    for_lanes(cols, [&](int i, int n)
                        __attribute__((always_inline)) { store_part(py + i, load_part(py + i, n) / total, n); });
  });
}
}  // namespace

IX_KERNEL(reduce_sum, "reduce_sum(x: f32[T,D]) -> f32[T,1]", "", launch_sum, nullptr)
IX_KERNEL(reduce_max, "reduce_max(x: f32[T,D]) -> f32[T,1]", "", launch_max, nullptr)
IX_KERNEL(softmax, "softmax(x: f32[T,D]) -> f32[T,D]", "", launch_softmax, nullptr)
