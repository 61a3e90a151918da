#include "cpu/backend.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>

#include "core/backends.h"
#include "core/platform.h"
#include "core/thread_pool.h"
#include "cpu/stream.h"

// A device is a number of threads of the process-wide pool. A lease is held from the first section after a synchronize
// until the next synchronize, so that engines in one process take turns step by step.
struct ix_device {
  ix_stream stream;
  std::unique_ptr<ix::ThreadPool::Lease> lease;
};

namespace ix::cpu {
namespace {

int32_t set_error(ix_error* error, const char* code, const char* text) {
  error->code = code;
  std::snprintf(error->text, sizeof error->text, "%s", text);
  return -1;
}

void run_section(ix_stream* stream, int chunks, void (*fn)(void*, int, int), void* ctx) {
  // `stream` is the first member of its device
  ix_device* device = reinterpret_cast<ix_device*>(stream);
  if (!device->lease) device->lease = std::make_unique<ThreadPool::Lease>(ThreadPool::instance(), stream->num_threads);
  device->lease->run(chunks, fn, ctx);
}

int32_t device_count(ix_error*) { return 1; }

int32_t device_info(int32_t index, ix_device_info* info, ix_error* error) {
  if (index != 0) return set_error(error, "IX_NO_DEVICE", "there is one CPU device, number 0");
  std::snprintf(info->name, sizeof info->name, "%s", platform::cpu_name().c_str());
  std::snprintf(info->arch, sizeof info->arch, "%s", isa_table().name);
  info->memory_bytes = platform::total_memory();
  info->free_bytes = platform::free_memory();
  return 0;
}

ix_device* open(int32_t index, const ix_device_options* options, ix_error* error) {
  if (index != 0) {
    set_error(error, "IX_NO_DEVICE", "there is one CPU device, number 0");
    return nullptr;
  }
  const int threads = options->num_threads > 0 ? options->num_threads : platform::usable_cores();
  return new ix_device{{run_section, threads}, nullptr};
}

void close(ix_device* device) { delete device; }

const ix_kernel* const* kernels(ix_device*, uint32_t* count) {
  *count = isa_table().num_kernels;
  return isa_table().kernels;
}
const ix_layout* const* layouts(ix_device*, uint32_t* count) {
  *count = isa_table().num_layouts;
  return isa_table().layouts;
}
int32_t num_threads(ix_device* device) { return device->stream.num_threads; }

void* alloc(ix_device*, size_t bytes, ix_error* error) {
  void* memory = platform::alloc_pages(bytes);
  if (!memory) {
    char text[128];
    std::snprintf(text, sizeof text, "cannot reserve %.1f MB of memory", double(bytes) / 1e6);
    set_error(error, "IX_OUT_OF_MEMORY", text);
  }
  return memory;
}
void free(ix_device*, void* memory, size_t bytes) { platform::free_pages(memory, bytes); }

int32_t fill(ix_device*, void* to, size_t stride, int byte, size_t row_bytes, size_t rows, ix_error*) {
  for (size_t r = 0; r < rows; r++) std::memset(static_cast<char*>(to) + r * stride, byte, row_bytes);
  return 0;
}
int32_t upload(ix_device*, void* destination, const void* source, size_t bytes, ix_error*) {
  std::memcpy(destination, source, bytes);
  return 0;
}
int32_t copy(ix_device*, void* to, size_t to_stride, const void* from, size_t from_stride, size_t row_bytes,
             size_t rows, ix_error*) {
  for (size_t r = 0; r < rows; r++)
    std::memcpy(static_cast<char*>(to) + r * to_stride, static_cast<const char*>(from) + r * from_stride, row_bytes);
  return 0;
}
ix_stream* stream(ix_device* device) { return &device->stream; }

int32_t synchronize(ix_device* device, ix_error*) {
  device->lease.reset();
  return 0;
}

// Launches do their work before they return: no marks, no graphs.
constexpr ix_backend kBackend = {IX_BACKEND_ABI, "cpu",       device_count, device_info, open,    close,   kernels,
                                 layouts,        num_threads, alloc,        free,        alloc,   free,    fill,
                                 upload,         copy,        stream,       synchronize, nullptr, nullptr, nullptr,
                                 nullptr,        nullptr,     nullptr,      nullptr,     nullptr};

}  // namespace

}  // namespace ix::cpu

extern "C" const ix_backend* inferx_cpu_backend_entry(uint32_t abi) {
  return abi == IX_BACKEND_ABI ? &ix::cpu::kBackend : nullptr;
}
