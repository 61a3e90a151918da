// The CUDA backend: the table of csrc/core/backend_abi.h over the runtime, behind the library's one exported function.
// A machine without driver or GPU gets the reason and what repairs it.
#include <cuda_runtime.h>

#include <algorithm>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>

#include "cuda/kernel.h"
#include "cuda_kernel_tables.inc"

namespace {

// Page-locked memory through which uploads pass. A part is used again when its copy is done.
constexpr size_t kPartBytes = 4 << 20;
constexpr int kParts = 8;
struct Part {
  char* memory = nullptr;
  cudaEvent_t copied = nullptr;
  bool taken = false;
};

}  // namespace

struct ix_device {
  ix_stream stream{};
  int index = 0, num_threads = 1;
  cudaStream_t uploads = nullptr;
  std::mutex mutex;
  std::condition_variable released;
  Part parts[kParts];
};

namespace {

int32_t set_error(ix_error* error, const char* code, const char* format, ...) {
  error->code = code;
  va_list args;
  va_start(args, format);
  std::vsnprintf(error->text, sizeof error->text, format, args);
  va_end(args);
  return -1;
}

// True if the call went well.
bool ok(cudaError_t result, const char* what, ix_error* error) {
  if (result == cudaSuccess) return true;
  cudaGetLastError();
  set_error(error, "IX_DEVICE", "CUDA: %s: %s", what, cudaGetErrorString(result));
  return false;
}

__global__ void probe_kernel() {}

int32_t device_count(ix_error* error) {
  int driver = 0, count = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
    return set_error(error, "IX_NO_DEVICE", "no NVIDIA driver was found; install the driver of your GPU");
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result == cudaErrorInsufficientDriver)
    return set_error(error, "IX_NO_DEVICE",
                     "the NVIDIA driver is too old: it supports CUDA %d.%d, %d.%d is needed; update the driver",
                     driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  if (result == cudaErrorNoDevice || (result == cudaSuccess && count == 0))
    return set_error(error, "IX_NO_DEVICE", "the NVIDIA driver sees no GPU; check CUDA_VISIBLE_DEVICES and nvidia-smi");
  if (result != cudaSuccess)
    return set_error(error, "IX_NO_DEVICE", "the NVIDIA driver does not start: %s", cudaGetErrorString(result));
  return count;
}

int32_t device_info(int32_t index, ix_device_info* info, ix_error* error) {
  int count = device_count(error);
  if (count < 0) return -1;
  if (index < 0 || index >= count)
    return set_error(error, "IX_NO_DEVICE", "there is no GPU %d; the driver sees %d", index, count);
  cudaDeviceProp prop;
  size_t free_bytes, total_bytes;
  if (!ok(cudaGetDeviceProperties(&prop, index), "reading the GPU's properties", error) ||
      !ok(cudaSetDevice(index), "starting the GPU", error) ||
      !ok(cudaMemGetInfo(&free_bytes, &total_bytes), "reading the GPU's memory", error))
    return -1;
  cudaFuncAttributes code;
  if (cudaFuncGetAttributes(&code, probe_kernel) == cudaErrorNoKernelImageForDevice) {
    cudaGetLastError();
    return set_error(error, "IX_NO_DEVICE", "this library has no code for %s (sm_%d%d)", prop.name, prop.major,
                     prop.minor);
  }
  std::snprintf(info->name, sizeof info->name, "%.127s", prop.name);
  std::snprintf(info->arch, sizeof info->arch, "sm_%d%d", prop.major, prop.minor);
  info->memory_bytes = total_bytes;
  info->free_bytes = free_bytes;
  return 0;
}

void close(ix_device* device) {
  cudaSetDevice(device->index);
  for (Part& part : device->parts) {
    if (part.copied) cudaEventDestroy(part.copied);
    if (part.memory) cudaFreeHost(part.memory);
  }
  if (device->uploads) cudaStreamDestroy(device->uploads);
  if (device->stream.handle) cudaStreamDestroy(device->stream.handle);
  if (device->stream.counters) cudaFree(device->stream.counters);
  delete device;
}

ix_device* open(int32_t index, const ix_device_options* options, ix_error* error) {
  ix_device_info info;
  if (device_info(index, &info, error) != 0) return nullptr;
  ix_device* device = new ix_device;
  device->index = index;
  device->num_threads =
      options->num_threads > 0 ? options->num_threads : int(std::max(1u, std::thread::hardware_concurrency()));
  const size_t counter_bytes = kStreamCounters * sizeof(uint32_t);
  if (!ok(cudaMalloc(&device->stream.counters, counter_bytes), "allocating counters", error) ||
      !ok(cudaMemset(device->stream.counters, 0, counter_bytes), "clearing counters", error) ||
      !ok(cudaStreamCreateWithFlags(&device->stream.handle, cudaStreamNonBlocking), "making a stream", error) ||
      !ok(cudaStreamCreateWithFlags(&device->uploads, cudaStreamNonBlocking), "making a stream", error)) {
    close(device);
    return nullptr;
  }
  return device;
}

const ix_kernel* const* kernels(ix_device*, uint32_t* count) {
  *count = sizeof kKernels / sizeof *kKernels;
  return kKernels;
}
const ix_layout* const* layouts(ix_device*, uint32_t* count) {
  *count = sizeof kLayouts / sizeof *kLayouts;
  return kLayouts;
}
int32_t num_threads(ix_device* device) { return device->num_threads; }  // of the host, for packing weights

void* alloc(ix_device* device, size_t bytes, ix_error* error) {
  cudaSetDevice(device->index);
  void* memory = nullptr;
  const cudaError_t result = cudaMalloc(&memory, bytes);
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t free_bytes = 0, total_bytes = 0;
    cudaMemGetInfo(&free_bytes, &total_bytes);
    set_error(error, "IX_OUT_OF_MEMORY", "%.2f GB of GPU memory are needed, %.2f of %.2f GB are free",
              double(bytes) / 1e9, double(free_bytes) / 1e9, double(total_bytes) / 1e9);
    return nullptr;
  }
  if (!ok(result, "reserving memory", error)) return nullptr;
  if (!ok(cudaMemsetAsync(memory, 0, bytes, device->stream.handle), "clearing memory", error) ||
      !ok(cudaStreamSynchronize(device->stream.handle), "clearing memory", error)) {
    cudaFree(memory);
    return nullptr;
  }
  return memory;
}
void free(ix_device* device, void* memory, size_t) {
  cudaSetDevice(device->index);
  cudaFree(memory);
}

void* alloc_host(ix_device* device, size_t bytes, ix_error* error) {
  cudaSetDevice(device->index);
  void* memory = nullptr;
  if (cudaHostAlloc(&memory, bytes, cudaHostAllocPortable) != cudaSuccess) {
    cudaGetLastError();
    set_error(error, "IX_OUT_OF_MEMORY", "cannot lock %.1f MB of the host's memory", double(bytes) / 1e6);
    return nullptr;
  }
  std::memset(memory, 0, bytes);
  return memory;
}
void free_host(ix_device* device, void* memory, size_t) {
  cudaSetDevice(device->index);
  cudaFreeHost(memory);
}

int32_t upload(ix_device* device, void* to, const void* from, size_t bytes, ix_error* error) {
  cudaSetDevice(device->index);
  for (size_t done = 0; done < bytes; done += kPartBytes) {
    const size_t count = std::min(kPartBytes, bytes - done);
    Part* part = nullptr;
    {
      std::unique_lock lock(device->mutex);
      device->released.wait(lock, [&] {
        for (Part& p : device->parts)
          if (!part && !p.taken) part = &p;
        return part != nullptr;
      });
      part->taken = true;
    }
    const bool good =
        (part->memory || ok(cudaHostAlloc(reinterpret_cast<void**>(&part->memory), kPartBytes, cudaHostAllocPortable),
                            "locking memory", error)) &&
        (part->copied ||
         ok(cudaEventCreateWithFlags(&part->copied, cudaEventDisableTiming), "making an event", error)) &&
        ok(cudaEventSynchronize(part->copied), "copying to the GPU", error) &&
        (std::memcpy(part->memory, static_cast<const char*>(from) + done, count), true) &&
        ok(cudaMemcpyAsync(static_cast<char*>(to) + done, part->memory, count, cudaMemcpyHostToDevice, device->uploads),
           "copying to the GPU", error) &&
        ok(cudaEventRecord(part->copied, device->uploads), "copying to the GPU", error);
    {
      std::lock_guard lock(device->mutex);
      part->taken = false;
    }
    device->released.notify_one();
    if (!good) return -1;
  }
  return 0;
}

int32_t copy(ix_device* device, void* to, size_t to_stride, const void* from, size_t from_stride, size_t row_bytes,
             size_t rows, ix_error* error) {
  cudaSetDevice(device->index);
  const bool dense = rows == 1 || (to_stride == row_bytes && from_stride == row_bytes);
  const cudaError_t result = dense
                                 ? cudaMemcpyAsync(to, from, row_bytes * rows, cudaMemcpyDefault, device->stream.handle)
                                 : cudaMemcpy2DAsync(to, to_stride, from, from_stride, row_bytes, rows,
                                                     cudaMemcpyDefault, device->stream.handle);
  return ok(result, "copying", error) ? 0 : -1;
}

ix_stream* stream(ix_device* device) {
  cudaSetDevice(device->index);  // launches follow, perhaps on a thread that used another GPU
  return &device->stream;
}

int32_t synchronize(ix_device* device, ix_error* error) {
  cudaSetDevice(device->index);
  const cudaError_t uploaded = cudaStreamSynchronize(device->uploads),
                    done = cudaStreamSynchronize(device->stream.handle);
  if (device->stream.error[0]) {
    set_error(error, "IX_DEVICE", "CUDA: the launch of %s", device->stream.error);
    device->stream.error[0] = 0;
    return -1;
  }
  return ok(uploaded, "copying to the GPU", error) && ok(done, "running kernels", error) ? 0 : -1;
}

constexpr ix_backend kBackend = {IX_BACKEND_ABI, "cuda",  device_count, device_info, open,       close,
                                 kernels,        layouts, num_threads,  alloc,       free,       alloc_host,
                                 free_host,      upload,  copy,         stream,      synchronize};

}  // namespace

extern "C" __attribute__((visibility("default"))) const ix_backend* inferx_backend_entry(uint32_t abi) {
  return abi == IX_BACKEND_ABI ? &kBackend : nullptr;
}
