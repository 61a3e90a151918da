// Launching kernels that use Hopper's features: properties of the current GPU, shared memory beyond 48 KB, clusters,
// programmatic dependent launch, tensor maps for the copy engine. Every call may stand inside a stream capture.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <atomic>

#include "cuda/stream.h"

namespace ix::cuda {

constexpr int kMaxDevices = 64;

// Counts how often a GPU's context was made anew after a device error: what was granted or made before is gone.
inline std::atomic<int> context_generation[kMaxDevices];

struct Gpu {
  int index = 0, sms = 0, capability = 0;  // 90 = sm_90
};

// Of the current device.
inline Gpu current_gpu() {
  static std::atomic<int> sms[kMaxDevices], capability[kMaxDevices];
  Gpu gpu;
  if (cudaGetDevice(&gpu.index) != cudaSuccess || gpu.index >= kMaxDevices) return gpu;
  gpu.sms = sms[gpu.index], gpu.capability = capability[gpu.index];
  if (gpu.sms && gpu.capability) return gpu;
  int major = 0, minor = 0;
  cudaDeviceGetAttribute(&gpu.sms, cudaDevAttrMultiProcessorCount, gpu.index);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu.index);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu.index);
  gpu.capability = major * 10 + minor;
  sms[gpu.index] = gpu.sms, capability[gpu.index] = gpu.capability;
  return gpu;
}

// A grid in which blocks of `cluster` neighbours form clusters. From sm_90 on it may start while the kernel before it
// still runs, if that one allows it: what that one or an earlier kernel writes must only be touched after
// wait_for_earlier_kernels() (ptx/async.cuh).
template <auto kKernel, class... A>
void launch_kernel(ix_stream* stream, const Gpu& gpu, int grid, int block, size_t shared, int cluster,
                   const A&... arguments) {
  static std::atomic<int64_t> granted[kMaxDevices];
  const int64_t wanted = int64_t(context_generation[gpu.index]) << 32 | int64_t(shared);
  if (shared > 48 * 1024 && granted[gpu.index] < wanted) {
    cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared));
    granted[gpu.index] = wanted;
  }
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(grid);
  config.blockDim = dim3(block);
  config.dynamicSmemBytes = shared;
  config.stream = stream->handle;
  config.attrs = attributes;
  if (gpu.capability >= 90) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs++].val.clusterDim = {unsigned(cluster), 1, 1};
  }
  cudaLaunchKernelEx(&config, kKernel, arguments...);
}

// bf16 of `rank` dimensions, the steps of all but the first in bytes, in swizzled boxes whose first side is 64 (one
// line of 128 bytes); outside of the array the copy engine delivers zeros. False if the driver refuses.
inline bool make_tensor_map(CUtensorMap* map, const void* data, int rank, const cuuint64_t* sizes,
                            const cuuint64_t* strides, const cuuint32_t* box) {
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                              const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static const Encode encode = [] {
    cudaDriverEntryPointQueryResult result;
    void* entry = nullptr;
    return cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &result) ==
                   cudaSuccess
               ? reinterpret_cast<Encode>(entry)
               : nullptr;
  }();
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  return encode && encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rank, const_cast<void*>(data), sizes, strides, box,
                          steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                          CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}
// A matrix, `stride` elements between its rows, in boxes of 64 columns x box_rows
inline bool make_tensor_map(CUtensorMap* map, const void* data, int64_t columns, int64_t rows, int64_t stride,
                            int box_rows) {
  const cuuint64_t sizes[2] = {cuuint64_t(columns), cuuint64_t(rows)}, strides[1] = {cuuint64_t(stride) * 2};
  const cuuint32_t box[2] = {64, cuuint32_t(box_rows)};
  return make_tensor_map(map, data, 2, sizes, strides, box);
}

}  // namespace ix::cuda
