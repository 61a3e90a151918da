#include "core/backends.h"

#include "core/error.h"
#include "core/platform.h"

namespace ix {

void raise(const ix_error& error) { throw Error(error.code ? error.code : "IX_DEVICE", error.text); }

const ix_backend* find_backend(const std::string& kind, const std::string& library) {
  if (kind == "cpu") return inferx_cpu_backend_entry(IX_BACKEND_ABI);
  if (kind != "cuda")
    fail("IX_INVALID_ARGUMENT", "there is no backend called %s; the backends are cpu and cuda", kind.c_str());
  if (library.empty())
    fail("IX_NO_DEVICE",
         "the CUDA library (inferx_cuda.so) was not found: install the package @inferx/linux-x64-cuda, or set "
         "INFERX_CUDA_LIBRARY");
  std::string why;
  auto entry = reinterpret_cast<ix_backend_entry_fn>(platform::load_symbol(library, "inferx_backend_entry", &why));
  if (!entry) fail("IX_NO_DEVICE", "the CUDA library %s cannot be opened: %s", library.c_str(), why.c_str());
  const ix_backend* backend = entry(IX_BACKEND_ABI);
  if (!backend || backend->abi != IX_BACKEND_ABI)
    fail("IX_NO_DEVICE",
         "the CUDA library %s is of another version of inferx; install the version that matches the main package",
         library.c_str());
  return backend;
}

Device::Device(const ix_backend* backend, int index, int num_threads) : backend_(backend), index_(index) {
  ix_error error{};
  const ix_device_options options{num_threads};
  handle_ = backend->open(index, &options, &error);
  if (!handle_) raise(error);
}
Device::~Device() { backend_->close(handle_); }

ix_device_info Device::info() const {
  ix_device_info info{};
  ix_error error{};
  if (backend_->device_info(index_, &info, &error) != 0) raise(error);
  return info;
}

const ix_kernel* Device::find_kernel(const std::string& signature, const std::string& tags) const {
  uint32_t count = 0;
  const ix_kernel* const* kernels = backend_->kernels(handle_, &count);
  for (uint32_t i = 0; i < count; i++)
    if (signature == kernels[i]->signature && tags == kernels[i]->tags) return kernels[i];
  return nullptr;
}

const ix_layout* Device::find_layout(const std::string& name) const {
  uint32_t count = 0;
  const ix_layout* const* layouts = backend_->layouts(handle_, &count);
  for (uint32_t i = 0; i < count; i++)
    if (name == layouts[i]->name) return layouts[i];
  return nullptr;
}

void Device::synchronize() const {
  ix_error error{};
  if (backend_->synchronize(handle_, &error) != 0) raise(error);
}

void Device::require_memory(double bytes) const {
  const double total = double(info().memory_bytes);
  if (total > 0 && bytes > total)
    fail("IX_OUT_OF_MEMORY", "%.1f GB are needed, the device has %.1f GB", bytes / 1e9, total / 1e9);
}

void Device::copy_rows(void* to, size_t to_stride, const void* from, size_t from_stride, size_t row_bytes,
                       size_t rows) const {
  ix_error error{};
  if (rows > 0 && row_bytes > 0 &&
      backend_->copy(handle_, to, to_stride, from, from_stride, row_bytes, rows, &error) != 0)
    raise(error);
}

void Device::fill_rows(void* to, size_t stride, int byte, size_t row_bytes, size_t rows) const {
  ix_error error{};
  if (rows > 0 && row_bytes > 0 && backend_->fill(handle_, to, stride, byte, row_bytes, rows, &error) != 0)
    raise(error);
}

Mark::Mark(std::shared_ptr<Device> device) : device_(std::move(device)) {
  ix_error error{};
  mark_ = device_->backend().make_mark(device_->handle(), &error);
  if (!mark_) raise(error);
}
Mark::~Mark() {
  if (mark_) device_->backend().free_mark(device_->handle(), mark_);
}
Mark& Mark::operator=(Mark&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(mark_, other.mark_);
  return *this;
}
void Mark::record() const {
  ix_error error{};
  if (device_->backend().record(device_->handle(), mark_, &error) != 0) raise(error);
}
void Mark::wait() const {
  ix_error error{};
  if (device_->backend().wait(device_->handle(), mark_, &error) != 0) raise(error);
}

Graph::~Graph() {
  if (graph_) device_->backend().free_graph(device_->handle(), graph_);
}
Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(graph_, other.graph_);
  return *this;
}
void Graph::begin() const {
  ix_error error{};
  if (device_->backend().capture(device_->handle(), &error) != 0) raise(error);
}
void Graph::end() {
  ix_error error{};
  graph_ = device_->backend().end_capture(device_->handle(), &error);
  if (!graph_ && error.code) raise(error);
}
void Graph::replay() const {
  ix_error error{};
  if (device_->backend().replay(device_->handle(), graph_, &error) != 0) raise(error);
}

}  // namespace ix
