// The stream of a CUDA device: what every launch gets.
#pragma once
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>

#include "core/backend_abi.h"

// The CUDA stream of a device, the first launch on it that failed since the last synchronize, and zeros that its
// kernels count in, one kernel after the other, and leave as zeros.
struct ix_stream {
  cudaStream_t handle;
  char error[IX_ERROR_TEXT];
  uint32_t* counters;
};
constexpr int kStreamCounters = 1 << 16;

namespace ix::cuda {
inline void check_launch(ix_stream* stream, const char* name) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess && !stream->error[0])
    snprintf(stream->error, sizeof stream->error, "%s: %s", name, cudaGetErrorString(error));
}
}  // namespace ix::cuda
