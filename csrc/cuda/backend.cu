// The CUDA backend: the table of csrc/core/backend_abi.h over the runtime, behind the library's one exported function.
// A machine without driver or GPU gets the reason and what repairs it.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>

#include "cuda/kernel.h"
#include "cuda_kernel_tables.inc"

struct ix_device {
  ix_stream stream{};
  int index = 0, num_threads = 1;
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

// A fault of a kernel leaves a GPU's context, which all devices of the process share, such that every further call
// fails; it ends when the context is made anew, and then all memory of the GPU is gone.
struct Context {
  int devices = 0;  // open ones
  bool broken = false;
};
std::mutex contexts_mutex;
Context contexts[ix::cuda::kMaxDevices];

bool breaks_context(cudaError_t result) {
  switch (result) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed:
      return true;
    default:
      return false;
  }
}

// With contexts_mutex held. True if the context is sound, made anew where nobody uses it any more.
bool restored(int index) {
  Context& context = contexts[index];
  if (context.broken && context.devices == 0) {
    cudaSetDevice(index);
    cudaDeviceReset();
    cudaGetLastError();
    context.broken = false;
    ix::cuda::context_generation[index]++;
  }
  return !context.broken;
}

// True if the call went well.
bool ok(cudaError_t result, const char* what, ix_error* error) {
  if (result == cudaSuccess) return true;
  cudaGetLastError();
  int index = 0;
  if (breaks_context(result) && cudaGetDevice(&index) == cudaSuccess && index < ix::cuda::kMaxDevices) {
    const std::lock_guard lock(contexts_mutex);
    contexts[index].broken = true;
  }
  set_error(error, "IX_DEVICE", "CUDA: %s: %s", what, cudaGetErrorString(result));
  return false;
}

// Makes a GPU the thread's, with a context. After a device error the driver may take a while to clear the old one away.
int32_t start(int index, ix_error* error) {
  const bool again = ix::cuda::context_generation[index] > 0;
  cudaError_t result = cudaSetDevice(index);
  for (int tries = 0; again && result == cudaErrorDevicesUnavailable && tries < 50; tries++) {
    cudaGetLastError();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    result = cudaSetDevice(index);
  }
  if (again && result == cudaErrorDevicesUnavailable)
    return set_error(error, "IX_DEVICE",
                     "GPU %d met a device error, and its driver does not let this process start it again (%s); restart "
                     "the process",
                     index, cudaGetErrorString(result));
  return ok(result, "starting the GPU", error) ? 0 : -1;
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
  if (index < 0 || index >= std::min(count, ix::cuda::kMaxDevices))
    return set_error(error, "IX_NO_DEVICE", "there is no GPU %d; the driver sees %d", index, count);
  {
    const std::lock_guard lock(contexts_mutex);
    if (!restored(index))
      return set_error(error, "IX_DEVICE",
                       "GPU %d is in use by models that met a device error; dispose all of them, then load again",
                       index);
  }
  cudaDeviceProp prop;
  size_t free_bytes, total_bytes;
  if (!ok(cudaGetDeviceProperties(&prop, index), "reading the GPU's properties", error) || start(index, error) != 0 ||
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
  if (device->stream.handle) cudaStreamDestroy(device->stream.handle);
  if (device->stream.counters) cudaFree(device->stream.counters);
  cudaGetLastError();  // of a broken context
  {
    const std::lock_guard lock(contexts_mutex);
    contexts[device->index].devices--;
    restored(device->index);
  }
  delete device;
}

ix_device* open(int32_t index, const ix_device_options* options, ix_error* error) {
  ix_device_info info;
  if (device_info(index, &info, error) != 0) return nullptr;
  ix_device* device = new ix_device;
  device->index = index;
  {
    const std::lock_guard lock(contexts_mutex);
    contexts[index].devices++;
  }
  device->num_threads =
      options->num_threads > 0 ? options->num_threads : int(std::max(1u, std::thread::hardware_concurrency()));
  const size_t counter_bytes = kStreamCounters * sizeof(uint32_t);
  if (!ok(cudaMalloc(&device->stream.counters, counter_bytes), "allocating counters", error) ||
      !ok(cudaMemset(device->stream.counters, 0, counter_bytes), "clearing counters", error) ||
      !ok(cudaStreamCreateWithFlags(&device->stream.handle, cudaStreamNonBlocking), "making a stream", error)) {
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
  cudaGetLastError();  // of a broken context
}

void* alloc_host(ix_device* device, size_t bytes, ix_error* error) {
  cudaSetDevice(device->index);
  void* memory = nullptr;
  const cudaError_t result = cudaHostAlloc(&memory, bytes, cudaHostAllocPortable);
  if (result != cudaSuccess && result != cudaErrorMemoryAllocation)
    return ok(result, "locking the host's memory", error), nullptr;
  if (result != cudaSuccess) {
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
  cudaGetLastError();
}

int32_t fill(ix_device* device, void* to, size_t stride, int byte, size_t row_bytes, size_t rows, ix_error* error) {
  cudaSetDevice(device->index);
  return ok(cudaMemset2DAsync(to, stride, byte, row_bytes, rows, device->stream.handle), "filling memory", error) ? 0
                                                                                                                  : -1;
}

int32_t upload(ix_device* device, void* to, const void* from, size_t bytes, ix_error* error) {
  cudaSetDevice(device->index);
  return ok(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, device->stream.handle), "copying to the GPU",
            error) &&
                 ok(cudaStreamSynchronize(device->stream.handle), "copying to the GPU", error)
             ? 0
             : -1;
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

// Reports a launch that failed since the last call, then `result`.
int32_t report(ix_device* device, cudaError_t result, const char* what, ix_error* error) {
  const bool good = ok(result, what, error);
  if (device->stream.error[0]) {
    set_error(error, "IX_DEVICE", "CUDA: the launch of %s", device->stream.error);
    device->stream.error[0] = 0;
    return -1;
  }
  return good ? 0 : -1;
}

int32_t synchronize(ix_device* device, ix_error* error) {
  cudaSetDevice(device->index);
  return report(device, cudaStreamSynchronize(device->stream.handle), "running kernels", error);
}

// A mark is an event, a graph an instantiated one.
ix_mark* make_mark(ix_device* device, ix_error* error) {
  cudaSetDevice(device->index);
  cudaEvent_t event;
  const unsigned flags = cudaEventDisableTiming | cudaEventBlockingSync;
  return ok(cudaEventCreateWithFlags(&event, flags), "making an event", error) ? reinterpret_cast<ix_mark*>(event)
                                                                               : nullptr;
}
void free_mark(ix_device* device, ix_mark* mark) {
  cudaSetDevice(device->index);
  cudaEventDestroy(reinterpret_cast<cudaEvent_t>(mark));
}
int32_t record(ix_device* device, ix_mark* mark, ix_error* error) {
  cudaSetDevice(device->index);
  return report(device, cudaEventRecord(reinterpret_cast<cudaEvent_t>(mark), device->stream.handle),
                "recording an event", error);
}
int32_t wait(ix_device* device, ix_mark* mark, ix_error* error) {
  cudaSetDevice(device->index);
  return ok(cudaEventSynchronize(reinterpret_cast<cudaEvent_t>(mark)), "running kernels", error) ? 0 : -1;
}

int32_t capture(ix_device* device, ix_error* error) {
  cudaSetDevice(device->index);
  return ok(cudaStreamBeginCapture(device->stream.handle, cudaStreamCaptureModeThreadLocal), "capturing", error) ? 0
                                                                                                                 : -1;
}
ix_graph* end_capture(ix_device* device, ix_error*) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t runnable = nullptr;
  const bool good = cudaStreamEndCapture(device->stream.handle, &graph) == cudaSuccess && graph &&
                    cudaGraphInstantiate(&runnable, graph, 0) == cudaSuccess;
  if (graph) cudaGraphDestroy(graph);
  cudaGetLastError();
  device->stream.error[0] = 0;  // a launch that capture refused is launched again
  return good ? reinterpret_cast<ix_graph*>(runnable) : nullptr;
}
int32_t replay(ix_device* device, ix_graph* graph, ix_error* error) {
  cudaSetDevice(device->index);
  return ok(cudaGraphLaunch(reinterpret_cast<cudaGraphExec_t>(graph), device->stream.handle), "launching a graph",
            error)
             ? 0
             : -1;
}
void free_graph(ix_device* device, ix_graph* graph) {
  cudaSetDevice(device->index);
  cudaGraphExecDestroy(reinterpret_cast<cudaGraphExec_t>(graph));
}

constexpr ix_backend kBackend = {IX_BACKEND_ABI, "cuda",      device_count, device_info, open,       close,     kernels,
                                 layouts,        num_threads, alloc,        free,        alloc_host, free_host, fill,
                                 upload,         copy,        stream,       synchronize, make_mark,  free_mark, record,
                                 wait,           capture,     end_capture,  replay,      free_graph};

}  // namespace

extern "C" __attribute__((visibility("default"))) const ix_backend* inferx_backend_entry(uint32_t abi) {
  return abi == IX_BACKEND_ABI ? &kBackend : nullptr;
}
