// Elementwise operations of two operands; the second may have one row or one column, which is repeated.
#pragma once
#include "cpu/elementwise/rows.h"

namespace ix::cpu {
namespace {

template <class F>
inline void binary(ix_stream* stream, const ix_kernel_call* call, F&& f) {
  const ix_tensor &a = call->operands[0], &b = call->operands[1], &y = call->operands[2];
  const bool one_row = b.dims[0] == 1, one_col = b.dims[1] == 1;
  for_pieces(stream, y.dims[0], y.dims[1], [&](int r, int first, int count) {
    const float *pa = row(a, r) + first, *pb = row(b, one_row ? 0 : r);
    float* py = row(y, r) + first;
    if (one_col) {
      const Vf vb = splat(*pb);
      for_lanes(count, [&](int i, int n)
                           __attribute__((always_inline)) { store_part(py + i, f(load_part(pa + i, n), vb), n); });
    } else {
      pb += first;
      for_lanes(count, [&](int i, int n) __attribute__((always_inline)) {
        store_part(py + i, f(load_part(pa + i, n), load_part(pb + i, n)), n);
      });
    }
  });
}

}  // namespace
}  // namespace ix::cpu
