// Row-major packed weights (`row_f32`, `row_bf16`, `row_f16`): rows of K elements, zero-padded to whole 128-byte lines,
// in panels of 64.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/kernel.h"

namespace ix::cuda {

constexpr int kPanel = 64;

template <class T>
struct RowWeights {
  static constexpr int kVector = 16 / sizeof(T);  // elements in 16 bytes
  const T* data;
  int64_t stride;          // elements from row to row
  int64_t rows_per_stack;  // rows between the matrices of [E,N,K]

  RowWeights(const void* data, int64_t rows, int64_t columns)
      : data(static_cast<const T*>(data)),
        stride(row_bytes(columns) / int64_t(sizeof(T))),
        rows_per_stack((rows + kPanel - 1) / kPanel * kPanel) {}
  static int64_t row_bytes(int64_t columns) { return (columns * int64_t(sizeof(T)) + 127) / 128 * 128; }
  static size_t panel_bytes(int64_t columns) { return size_t(row_bytes(columns)) * kPanel; }
  __device__ const T* row(int64_t r) const { return data + r * stride; }
};

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float to_float(__half x) { return __half2float(x); }

// 16 bytes of weights as floats
template <class T>
__device__ inline void load_vector(const T* from, float (&to)[16 / sizeof(T)]) {
  const uint4 raw = __ldg(reinterpret_cast<const uint4*>(from));
  const T* values = reinterpret_cast<const T*>(&raw);
#pragma unroll
  for (int i = 0; i < int(16 / sizeof(T)); i++) to[i] = to_float(values[i]);
}

// Where the products of one launch lie: output row t is inputs row t times the weights of its expert, or of the only
// matrix.
struct Product {
  const float* x;
  int64_t x_stride;
  float* y;
  int64_t y_stride;
  const float* bias;
  int tokens, n, k;
};

}  // namespace ix::cuda
