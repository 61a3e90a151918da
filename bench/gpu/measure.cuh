// Shared by the GPU benchmarks: device memory with random contents, graph timing, and the card's own ceiling of reading.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "cuda/kernel.h"

#define CHECK(call)                                                                                          \
  do {                                                                                                       \
    const cudaError_t result = call;                                                                         \
    if (result != cudaSuccess) {                                                                             \
      std::printf("FAILED %s at %s:%d: %s\n", #call, __FILE__, __LINE__, cudaGetErrorString(result));        \
      std::exit(1);                                                                                          \
    }                                                                                                        \
  } while (0)

__host__ __device__ inline uint32_t random_bits(uint64_t i, uint32_t seed) {  // splitmix64
  uint64_t z = i * 0x9E3779B97F4A7C15ull + seed * 0xD1B54A32D192ED03ull + 0x632BE59BD9B4E019ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return uint32_t(z >> 32);
}
__host__ __device__ inline float random_value(uint64_t i, uint32_t seed) { return float(random_bits(i, seed) >> 8) * (2.0f / 16777216.0f) - 1.0f; }

template <class T>
__global__ void fill_kernel(T* data, size_t count, float size, uint32_t seed) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += size_t(gridDim.x) * blockDim.x) data[i] = T(random_value(i, seed) * size);
}

template <class T>
struct Memory {
  T* data = nullptr;
  size_t count;
  explicit Memory(size_t n) : count(n) { CHECK(cudaMalloc(&data, std::max<size_t>(n, 1) * sizeof(T))); }
  ~Memory() { cudaFree(data); }
  Memory(const Memory&) = delete;
  void fill(float size, uint32_t seed) {
    fill_kernel<<<2048, 256>>>(data, count, size, seed);
    CHECK(cudaDeviceSynchronize());
  }
  void bytes(int value) { CHECK(cudaMemset(data, value, count * sizeof(T))); }  // 0xff: NaN
  void put(const std::vector<T>& values) { CHECK(cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice)); }
  std::vector<T> get() const {
    std::vector<T> values(count);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(values.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }
};

inline ix_stream new_stream() {
  ix_stream stream{};
  CHECK(cudaStreamCreateWithFlags(&stream.handle, cudaStreamNonBlocking));
  return stream;
}

// Median microseconds of one of `nodes` launches that run as a captured graph.
inline double graph_us(ix_stream& stream, int nodes, const std::function<void(int)>& launch) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  CHECK(cudaStreamBeginCapture(stream.handle, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < nodes; i++) launch(i);
  CHECK(cudaStreamEndCapture(stream.handle, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  std::vector<float> times;
  for (int i = 0; i < 14; i++) {
    CHECK(cudaEventRecord(begin, stream.handle));
    CHECK(cudaGraphLaunch(exec, stream.handle));
    CHECK(cudaEventRecord(end, stream.handle));
    CHECK(cudaEventSynchronize(end));
    float ms;
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    if (i >= 3) times.push_back(ms * 1e3f / nodes);
  }
  if (stream.error[0]) std::printf("FAILED %s\n", stream.error), std::exit(1);
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

__global__ void read_kernel(const uint4* data, size_t count, uint32_t* out) {
  uint32_t sum = 0;
  const size_t step = size_t(gridDim.x) * blockDim.x;
  size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
  for (; i + 7 * step < count; i += 8 * step) {
    uint4 v[8];
#pragma unroll
    for (int j = 0; j < 8; j++) v[j] = __ldcs(data + i + j * step);
#pragma unroll
    for (int j = 0; j < 8; j++) sum ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  if (sum == 0x12345678) *out = sum;
}

// TB/s of a kernel that only reads 2 GiB
inline double read_ceiling(ix_stream& stream) {
  Memory<uint4> data(size_t(1) << 27);
  Memory<uint32_t> out(1);
  fill_kernel<<<2048, 256>>>(reinterpret_cast<float*>(data.data), data.count * 4, 1.0f, 7);
  CHECK(cudaDeviceSynchronize());
  double best = 0;
  for (int blocks : {132 * 4, 132 * 8, 132 * 16})
    best = std::max(best, double(data.count) * 16 / 1e6 / graph_us(stream, 1, [&](int) { read_kernel<<<blocks, 512, 0, stream.handle>>>(data.data, data.count, out.data); }));
  return best;
}
