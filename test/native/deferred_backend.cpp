// A device that works later, for tests: the CPU's kernels behind the backend table of a GPU. Launches, copies and fills
// are queued and run by a thread, slowly enough that the caller is always ahead; marks and graphs are there as on a
// GPU. An executor that reuses staged memory too early, or replays a graph where it should not, computes something else
// than on the CPU.
#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/backends.h"
#include "core/signature.h"

using Work = std::function<void()>;

struct ix_mark {
  bool passed = true;
};
struct ix_graph {
  std::vector<Work> work;
};
struct ix_device {
  ix_device* cpu = nullptr;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Work> queue;
  bool busy = false, stop = false, captures = false;
  std::vector<Work> captured;
  std::thread thread;
};

namespace {

const ix_backend& cpu() { return *inferx_cpu_backend_entry(IX_BACKEND_ABI); }

void launch(ix_device* device, Work work) {
  std::lock_guard lock(device->mutex);
  if (device->captures)
    device->captured.push_back(std::move(work));
  else
    device->queue.push_back(std::move(work));
  device->changed.notify_all();
}

void run(ix_device* device) {
  std::unique_lock lock(device->mutex);
  for (;;) {
    device->changed.wait(lock, [&] { return device->stop || !device->queue.empty(); });
    if (device->queue.empty()) return;
    const Work work = std::move(device->queue.front());
    device->queue.pop_front();
    device->busy = true;
    lock.unlock();
    work();
    lock.lock();
    device->busy = false;
    device->changed.notify_all();
  }
}

// What comes from the host arrives late.
void linger() { std::this_thread::sleep_for(std::chrono::microseconds(200)); }

// ---- kernels: each queues the CPU's of the same number with copies of its operands ----------------

constexpr size_t kMaxKernels = 512;
struct Kernel {
  ix_kernel own;
  const ix_kernel* real;
  size_t operands, scalars;
};
std::vector<Kernel> all_kernels;

template <size_t kIndex>
void launch_kernel(ix_stream* stream, const ix_kernel_call* call) {
  const Kernel& kernel = all_kernels[kIndex];
  ix_device* device = reinterpret_cast<ix_device*>(stream);
  std::vector<ix_tensor> operands(call->operands, call->operands + kernel.operands);
  std::vector<ix_attr> attrs(call->attrs, call->attrs + kernel.scalars);
  launch(device, [=, real = kernel.real, workspace = call->workspace] {
    const ix_kernel_call copy{operands.data(), attrs.data(), workspace};
    real->launch(cpu().stream(device->cpu), &copy);
  });
}
template <size_t... kIndex>
constexpr auto launchers(std::index_sequence<kIndex...>) {
  return std::array<void (*)(ix_stream*, const ix_kernel_call*), sizeof...(kIndex)>{launch_kernel<kIndex>...};
}

const std::vector<const ix_kernel*>& kernel_table(ix_device* device) {
  static const std::vector<const ix_kernel*> table = [&] {
    constexpr auto launch_at = launchers(std::make_index_sequence<kMaxKernels>());
    uint32_t count = 0;
    const ix_kernel* const* real = cpu().kernels(device->cpu, &count);
    for (uint32_t i = 0; i < std::min<uint32_t>(count, kMaxKernels); i++) {
      const std::string_view text = real[i]->signature;
      if (text.find("->") == text.npos) {  // the executor's own have no results
        all_kernels.push_back({*real[i], real[i], size_t(std::count(text.begin(), text.end(), ':')), 0});
      } else {
        const ix::Signature s = ix::parse_signature(text);
        all_kernels.push_back({*real[i], real[i], s.operands.size() + s.results.size(), s.scalars.size()});
      }
      all_kernels.back().own.launch = launch_at[i];
    }
    std::vector<const ix_kernel*> pointers;
    for (const Kernel& kernel : all_kernels) pointers.push_back(&kernel.own);
    return pointers;
  }();
  return table;
}

// ---- the table -----------------------------------------------------------------------------------

ix_device* open(int32_t index, const ix_device_options* options, ix_error* error) {
  ix_device* inner = cpu().open(index, options, error);
  if (!inner) return nullptr;
  ix_device* device = new ix_device;
  device->cpu = inner;
  device->thread = std::thread(run, device);
  return device;
}
void close(ix_device* device) {
  {
    std::lock_guard lock(device->mutex);
    device->stop = true;
  }
  device->changed.notify_all();
  device->thread.join();
  cpu().close(device->cpu);
  delete device;
}
const ix_kernel* const* kernels(ix_device* device, uint32_t* count) {
  *count = uint32_t(kernel_table(device).size());
  return kernel_table(device).data();
}
const ix_layout* const* layouts(ix_device* device, uint32_t* count) { return cpu().layouts(device->cpu, count); }
int32_t num_threads(ix_device* device) { return cpu().num_threads(device->cpu); }
void* alloc(ix_device* device, size_t bytes, ix_error* error) { return cpu().alloc(device->cpu, bytes, error); }
void release(ix_device* device, void* memory, size_t bytes) { cpu().free(device->cpu, memory, bytes); }
int32_t fill(ix_device* device, void* to, size_t stride, int byte, size_t row_bytes, size_t rows, ix_error*) {
  launch(device, [=] {
    ix_error ignored{};
    cpu().fill(device->cpu, to, stride, byte, row_bytes, rows, &ignored);
  });
  return 0;
}
int32_t upload(ix_device*, void* to, const void* from, size_t bytes, ix_error*) {
  std::memcpy(to, from, bytes);
  return 0;
}
int32_t copy(ix_device* device, void* to, size_t to_stride, const void* from, size_t from_stride, size_t row_bytes,
             size_t rows, ix_error*) {
  launch(device, [=] {
    linger();
    ix_error ignored{};
    cpu().copy(device->cpu, to, to_stride, from, from_stride, row_bytes, rows, &ignored);
  });
  return 0;
}
ix_stream* stream(ix_device* device) { return reinterpret_cast<ix_stream*>(device); }
void give_cores_back(ix_device* device) {
  ix_error ignored{};
  cpu().synchronize(device->cpu, &ignored);
}
int32_t synchronize(ix_device* device, ix_error*) {
  launch(device, [=] { give_cores_back(device); });
  std::unique_lock lock(device->mutex);
  device->changed.wait(lock, [&] { return device->queue.empty() && !device->busy; });
  return 0;
}

ix_mark* make_mark(ix_device*, ix_error*) { return new ix_mark; }
void free_mark(ix_device*, ix_mark* mark) { delete mark; }
int32_t record(ix_device* device, ix_mark* mark, ix_error*) {
  {
    std::lock_guard lock(device->mutex);
    mark->passed = false;
  }
  launch(device, [=] {
    give_cores_back(device);
    std::lock_guard lock(device->mutex);
    mark->passed = true;
  });
  return 0;
}
int32_t wait(ix_device* device, ix_mark* mark, ix_error*) {
  std::unique_lock lock(device->mutex);
  device->changed.wait(lock, [&] { return mark->passed; });
  return 0;
}
int32_t capture(ix_device* device, ix_error*) {
  std::lock_guard lock(device->mutex);
  device->captures = true;
  return 0;
}
ix_graph* end_capture(ix_device* device, ix_error*) {
  std::lock_guard lock(device->mutex);
  device->captures = false;
  return new ix_graph{std::exchange(device->captured, {})};
}
int32_t replay(ix_device* device, ix_graph* graph, ix_error*) {
  for (const Work& work : graph->work) launch(device, work);
  return 0;
}
void free_graph(ix_device*, ix_graph* graph) { delete graph; }

}  // namespace

extern "C" __attribute__((visibility("default"))) const ix_backend* inferx_backend_entry(uint32_t abi) {
  static const ix_backend table = {IX_BACKEND_ABI,
                                   "cuda",
                                   cpu().device_count,
                                   cpu().device_info,
                                   open,
                                   close,
                                   kernels,
                                   layouts,
                                   num_threads,
                                   alloc,
                                   release,
                                   alloc,
                                   release,
                                   fill,
                                   upload,
                                   copy,
                                   stream,
                                   synchronize,
                                   make_mark,
                                   free_mark,
                                   record,
                                   wait,
                                   capture,
                                   end_capture,
                                   replay,
                                   free_graph};
  return abi == IX_BACKEND_ABI ? &table : nullptr;
}
