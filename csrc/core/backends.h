// The backends that this process can use, and devices opened on them.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/backend_abi.h"

// The CPU backend's entry; it is linked in and speaks the same versioned table as a library.
extern "C" const ix_backend* inferx_cpu_backend_entry(uint32_t abi);

namespace ix {

// "cpu", or "cuda" from the library at `library`. Throws IX_NO_DEVICE with the reason when it cannot be used.
const ix_backend* find_backend(const std::string& kind, const std::string& library);

// Throws the error that a backend reported.
[[noreturn]] void raise(const ix_error& error);

// An open device. Shared by weights and executors; closed with the last of them.
class Device {
 public:
  Device(const ix_backend* backend, int index, int num_threads);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const ix_backend& backend() const { return *backend_; }
  ix_device* handle() const { return handle_; }
  ix_stream* stream() const { return backend_->stream(handle_); }
  int num_threads() const { return backend_->num_threads(handle_); }
  int index() const { return index_; }
  ix_device_info info() const;
  const ix_kernel* find_kernel(const std::string& signature,
                               const std::string& tags) const;  // nullptr if there is none
  const ix_layout* find_layout(const std::string& name) const;
  void synchronize() const;
  // In stream order, between device memory and memory of HostMemory.
  void copy_rows(void* to, size_t to_stride, const void* from, size_t from_stride, size_t row_bytes, size_t rows) const;
  void copy(void* to, const void* from, size_t bytes) const { copy_rows(to, bytes, from, bytes, bytes, 1); }
  void fill_rows(void* to, size_t stride, int byte, size_t row_bytes, size_t rows) const;
  // Whether the device's memory is ordinary memory of this process.
  bool has_host_memory() const { return backend_->alloc == backend_->alloc_host; }
  // Whether launches return before the work is done: then marks and graphs can be made.
  bool is_asynchronous() const { return backend_->make_mark != nullptr; }
  // Throws IX_OUT_OF_MEMORY if the device has less memory than that in all.
  void require_memory(double bytes) const;

 private:
  const ix_backend* backend_;
  int index_;
  ix_device* handle_;
};

// Memory that a backend gave, zeroed: on the device, or on the host where the device's copies reach it.
template <void* (*ix_backend::*kAlloc)(ix_device*, size_t, ix_error*),
          void (*ix_backend::*kFree)(ix_device*, void*, size_t)>
class BackendMemory {
 public:
  BackendMemory() = default;
  BackendMemory(std::shared_ptr<Device> device, size_t bytes) : device_(std::move(device)), bytes_(bytes) {
    if (bytes == 0) return;
    ix_error error{};
    data_ = (device_->backend().*kAlloc)(device_->handle(), bytes, &error);
    if (!data_) raise(error);
  }
  ~BackendMemory() { reset(); }
  BackendMemory(BackendMemory&& other) noexcept { *this = std::move(other); }
  BackendMemory& operator=(BackendMemory&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  void reset() {
    if (data_) (device_->backend().*kFree)(device_->handle(), data_, bytes_);
    data_ = nullptr;
    bytes_ = 0;
  }
  char* data() const { return static_cast<char*>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<Device> device_;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};
using DeviceMemory = BackendMemory<&ix_backend::alloc, &ix_backend::free>;
using HostMemory = BackendMemory<&ix_backend::alloc_host, &ix_backend::free_host>;

// A place in the order of what was launched on an asynchronous device.
class Mark {
 public:
  Mark() = default;
  explicit Mark(std::shared_ptr<Device> device);
  ~Mark();
  Mark(Mark&& other) noexcept { *this = std::move(other); }
  Mark& operator=(Mark&& other) noexcept;
  void record() const;  // behind everything launched so far
  void wait() const;    // until the device has passed it; throws what went wrong there

 private:
  std::shared_ptr<Device> device_;
  ix_mark* mark_ = nullptr;
};

// Launches captured on an asynchronous device, to be run again and again.
class Graph {
 public:
  // Captures what `launch` launches. Empty if that cannot be kept.
  template <class F>
  static Graph capture(std::shared_ptr<Device> device, F&& launch) {
    Graph graph(std::move(device));
    graph.begin();
    try {
      launch();
    } catch (...) {
      graph.end();
      throw;
    }
    graph.end();
    return graph;
  }
  Graph() = default;
  ~Graph();
  Graph(Graph&& other) noexcept { *this = std::move(other); }
  Graph& operator=(Graph&& other) noexcept;
  explicit operator bool() const { return graph_ != nullptr; }
  void replay() const;

 private:
  explicit Graph(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  void begin() const;
  void end();

  std::shared_ptr<Device> device_;
  ix_graph* graph_ = nullptr;
};

}  // namespace ix
