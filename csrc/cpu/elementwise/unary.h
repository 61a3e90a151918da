// Elementwise operations of one operand.
#pragma once
#include "cpu/elementwise/rows.h"

namespace ix::cpu {
namespace {

template <class F>
inline void unary(ix_stream* stream, const ix_kernel_call* call, F&& f) {
  const ix_tensor &x = call->operands[0], &y = call->operands[1];
  for_pieces(stream, y.dims[0], y.dims[1], [&](int r, int first, int count) {
    const float* px = row(x, r) + first;
    float* py = row(y, r) + first;
    for_lanes(count,
              [&](int i, int n) __attribute__((always_inline)) { store_part(py + i, f(load_part(px + i, n)), n); });
  });
}

}  // namespace
}  // namespace ix::cpu
