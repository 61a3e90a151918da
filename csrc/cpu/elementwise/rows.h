// How kernels that treat rows or elements on their own are cut for the threads.
#pragma once
#include "cpu/act/lanes.h"
#include "cpu/kernel.h"

namespace ix::cpu {
namespace {

constexpr int kGrain = 8192;  // elements in a chunk: some microseconds, many times the cost of claiming it

IX_INLINE float* row(const ix_tensor& t, int64_t i) { return static_cast<float*>(t.data) + i * t.stride; }
IX_INLINE int32_t* row_i(const ix_tensor& t, int64_t i) { return static_cast<int32_t*>(t.data) + i * t.stride; }
IX_INLINE int32_t* ints(const ix_tensor& t) { return static_cast<int32_t*>(t.data); }
IX_INLINE float* floats(const ix_tensor& t) { return static_cast<float*>(t.data); }

// body(r) for rows [0, rows) of `cols` elements each
template <class F>
IX_INLINE void for_rows(ix_stream* stream, int rows, int cols, F&& body) {
  const int per_chunk = max(1, kGrain / max(1, cols));
  parallel(stream, (rows + per_chunk - 1) / per_chunk, [&](int chunk, int) {
    for (int r = chunk * per_chunk; r < min(rows, (chunk + 1) * per_chunk); r++) body(r);
  });
}

// body(r, first, count): the same where columns are independent too, so that one wide row is shared out
template <class F>
IX_INLINE void for_pieces(ix_stream* stream, int rows, int cols, F&& body) {
  const int pieces = (cols + kGrain - 1) / kGrain;
  if (pieces <= 1) return for_rows(stream, rows, cols, [&](int r) { body(r, 0, cols); });
  parallel(stream, rows * pieces, [&](int chunk, int) {
    const int first = chunk % pieces * kGrain;
    body(chunk / pieces, first, min(kGrain, cols - first));
  });
}

}  // namespace
}  // namespace ix::cpu
