// Neighbours in a row as a thread holds them: N = 4, or 8 where all is bf16, if rows begin at multiples of N elements
// and have a multiple of N, else 1. Values are floats, whatever memory holds.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <initializer_list>
#include <type_traits>

#include "cuda/kernel.h"

namespace ix::cuda {

template <int N>
struct Vector {
  float v[N];
};

template <int N, class F>
__device__ Vector<N> map(F f, const Vector<N>& a) {
  Vector<N> y;
#pragma unroll
  for (int i = 0; i < N; i++) y.v[i] = f(a.v[i]);
  return y;
}
template <int N, class F>
__device__ Vector<N> map(F f, const Vector<N>& a, const Vector<N>& b) {
  Vector<N> y;
#pragma unroll
  for (int i = 0; i < N; i++) y.v[i] = f(a.v[i], b.v[i]);
  return y;
}

__device__ inline float as_float(float x) { return x; }
__device__ inline float as_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float as_float(__half x) { return __half2float(x); }

// Loads go past L1, see Rows.
template <int N, class T>
__device__ Vector<N> load(const T* from) {
  static_assert(N == 1 || N == 4 || (N == 8 && sizeof(T) == 2));
  if constexpr (N == 1) {
    return {{as_float(__ldcg(from))}};
  } else if constexpr (sizeof(T) == 4) {
    const float4 v = __ldcg(reinterpret_cast<const float4*>(from));
    return {{v.x, v.y, v.z, v.w}};
  } else {
    using Raw = std::conditional_t<N == 8, uint4, uint2>;
    const Raw raw = __ldcg(reinterpret_cast<const Raw*>(from));
    Vector<N> v;
#pragma unroll
    for (int i = 0; i < N; i++) v.v[i] = as_float(reinterpret_cast<const T*>(&raw)[i]);
    return v;
  }
}
__device__ inline void store(float* to, const Vector<1>& x) { *to = x.v[0]; }
__device__ inline void store(__nv_bfloat16* to, const Vector<1>& x) { *to = __float2bfloat16_rn(x.v[0]); }
__device__ inline void store(__half* to, const Vector<1>& x) { *to = __float2half_rn(x.v[0]); }
__device__ inline void store(float* to, const Vector<4>& x) {
  *reinterpret_cast<float4*>(to) = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]);
}
__device__ inline void store(__nv_bfloat16* to, const Vector<4>& x) {
  const __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(x.v[0], x.v[1]), __floats2bfloat162_rn(x.v[2], x.v[3])};
  *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(pairs);
}

__device__ inline void store(__half* to, const Vector<4>& x) {
  const __half2 pairs[2] = {__floats2half2_rn(x.v[0], x.v[1]), __floats2half2_rn(x.v[2], x.v[3])};
  *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(pairs);
}
__device__ inline void store(__nv_bfloat16* to, const Vector<8>& x) {
  __nv_bfloat162 pairs[4];
#pragma unroll
  for (int i = 0; i < 4; i++) pairs[i] = __floats2bfloat162_rn(x.v[2 * i], x.v[2 * i + 1]);
  *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(pairs);
}

template <class T>
bool takes(int n, const Rows<T>& x) {
  return reinterpret_cast<uintptr_t>(x.data) % (n * sizeof(T)) == 0 && x.stride % n == 0;
}
// Whether rows of `columns` elements can be taken four at a time.
template <class... T>
bool takes_fours(int columns, const Rows<T>&... tables) {
  return columns % 4 == 0 && (takes(4, tables) && ...);
}

// The N for rows of `columns` elements, at most kMost.
template <int kMost>
struct Width {
  int n;
};
template <class... T>
auto width_for(int columns, const Rows<T>&... tables) {
  constexpr int kMost = ((sizeof(T) == 2) && ...) ? 8 : 4;
  for (int n : {8, 4})
    if (n <= kMost && columns % n == 0 && (takes(n, tables) && ...)) return Width<kMost>{n};
  return Width<kMost>{1};
}

// A thread's place in the rows.
template <int N>
struct Place {
  static constexpr int kCount = N;
  int row, column;
  template <class T>
  __device__ Vector<N> of(const Rows<T>& x) const {
    return load<N>(x[row] + column);
  }
};

template <int N, class F>
__global__ void vectors_kernel(int columns, int blocks_per_row, F f) {
  allow_next_kernel();
  wait_for_earlier_kernels();
  const int row = blockIdx.x / blocks_per_row, c = ((blockIdx.x - row * blocks_per_row) * blockDim.x + threadIdx.x) * N;
  if (c < columns) f(Place<N>{row, c});
}

// f(Place<N>) on the device for all elements, N of them at a time.
template <int kMost, class F>
void for_vectors(ix_stream* stream, int rows, int columns, Width<kMost> width, F f) {
  if (rows <= 0 || columns <= 0) return;
  const int units = columns / width.n, threads = units >= 256 ? 256 : divide_up(units, 32) * 32,
            blocks = divide_up(units, threads);
  const Gpu gpu = current_gpu();
  if (width.n == 1)
    launch_kernel<vectors_kernel<1, F>>(stream, gpu, rows * blocks, threads, 0, 1, columns, blocks, f);
  else if (width.n == 4)
    launch_kernel<vectors_kernel<4, F>>(stream, gpu, rows * blocks, threads, 0, 1, columns, blocks, f);
  else if constexpr (kMost == 8)
    launch_kernel<vectors_kernel<8, F>>(stream, gpu, rows * blocks, threads, 0, 1, columns, blocks, f);
}

}  // namespace ix::cuda
