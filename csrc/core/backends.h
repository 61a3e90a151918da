// The backends that this process can use, and devices opened on them.
#pragma once
#include <memory>
#include <string>
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
  const ix_kernel* find_kernel(const std::string& signature, const std::string& tags) const;  // nullptr if there is none
  const ix_layout* find_layout(const std::string& name) const;
  void synchronize() const;
  // Throws IX_OUT_OF_MEMORY if the device has less memory than that in all.
  void require_memory(double bytes) const;

 private:
  const ix_backend* backend_;
  int index_;
  ix_device* handle_;
};

// Memory on a device, zeroed.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(std::shared_ptr<Device> device, size_t bytes);
  ~DeviceMemory() { reset(); }
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  void reset();
  char* data() const { return static_cast<char*>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<Device> device_;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace ix
