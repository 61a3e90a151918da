#include "core/weights.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "core/dtype.h"
#include "core/thread_pool.h"

namespace ix {
namespace {

constexpr uint64_t kAlignment = 256;           // of weights in their memory
constexpr uint64_t kPieceBytes = 2 << 20;      // what a thread packs at once: fits its cache
constexpr uint64_t kSectionBytes = 256 << 20;  // after so many others get a turn on the threads

// A weight's place, and how its rows become panels. Plain rows are panels without padding.
class Packed {
 public:
  Packed(const Device& device, const PlanWeight& weight, const TensorTable& tensors)
      : layout_(weight.layout == "f32" ? nullptr : device.find_layout(std::string(weight.layout))),
        rows_(weight, source_type(weight, layout_), tensors),
        columns_(weight.columns()) {
    const uint64_t rows = weight.rows(), stacks = layout_ && weight.rank == 3 ? uint64_t(weight.dims[0]) : 1;
    rows_per_stack_ = rows / stacks;
    panel_rows_ = layout_ ? uint64_t(layout_->panel_rows) : 1;
    panel_bytes_ = layout_ ? layout_->panel_bytes(int64_t(columns_)) : columns_ * 4;
    panels_per_stack_ = (rows_per_stack_ + panel_rows_ - 1) / panel_rows_;
    panels = stacks * panels_per_stack_;
    bytes = panels * panel_bytes_;
    panels_per_piece = std::clamp<uint64_t>(kPieceBytes / panel_bytes_, 1, panels);
  }

  // A thread's working memory.
  struct Buffers {
    std::vector<char> rows, panel;
    std::vector<const void*> pointers;
    RowBuffers reading;
  };

  uint64_t panel_bytes() const { return panel_bytes_; }

  // Panels [first, first + count) to `out`.
  void pack(char* out, uint64_t first, uint64_t count, Buffers& buffers) const {
    if (!layout_) return rows_.read(out, first, count, buffers.reading);
    for (uint64_t n; count > 0; first += n, count -= n, out += n * panel_bytes_) {  // stack by stack
      const uint64_t stack = first / panels_per_stack_, row = first % panels_per_stack_ * panel_rows_;
      n = std::min(count, panels_per_stack_ - first % panels_per_stack_);
      const uint64_t rows = std::min(n * panel_rows_, rows_per_stack_ - row), bytes = rows * rows_.row_bytes();
      if (!layout_->pack && rows_.row_bytes() * panel_rows_ == panel_bytes_) {
        rows_.read(out, stack * rows_per_stack_ + row, rows, buffers.reading);
        std::memset(out + bytes, 0, n * panel_bytes_ - bytes);
        continue;
      }
      buffers.rows.resize(bytes);
      rows_.read(buffers.rows.data(), stack * rows_per_stack_ + row, rows, buffers.reading);
      for (uint64_t p = 0; p < n; p++)
        pack_panel(out + p * panel_bytes_, p * panel_rows_, std::min(panel_rows_, rows - p * panel_rows_), buffers);
    }
  }

  uint64_t panels, bytes, panels_per_piece;

 private:
  static const Dtype& source_type(const PlanWeight& weight, const ix_layout* layout) {
    const std::string name(weight.name);
    if (!layout && weight.layout != "f32")
      fail("IX_PLAN", "weight %s: there is no layout %s", name.c_str(), std::string(weight.layout).c_str());
    const Dtype* dtype = find_dtype(layout ? layout->source : "f32");
    if (!dtype) fail("IX_PLAN", "layout %s packs an unknown type", layout->name);
    if (weight.columns() % dtype->block_elements)
      fail("IX_PLAN", "weight %s: rows of %llu are no multiple of the block of %s", name.c_str(),
           (unsigned long long)weight.columns(), layout->source);
    return *dtype;
  }

  void pack_panel(char* out, uint64_t row, uint64_t rows, Buffers& buffers) const {
    if (!layout_->pack) return pad_rows(out, buffers.rows.data() + row * rows_.row_bytes(), rows);
    buffers.pointers.resize(panel_rows_);
    for (uint64_t r = 0; r < rows; r++) buffers.pointers[r] = buffers.rows.data() + (row + r) * rows_.row_bytes();
    // panels are aligned to cache lines in their layout, so they are packed in place only where they lie that way
    const auto misplaced = [](const char* p) { return reinterpret_cast<uintptr_t>(p) % 64; };
    char* panel = out;
    if (misplaced(out)) {
      buffers.panel.resize(panel_bytes_ + 64);
      panel = buffers.panel.data() + (64 - misplaced(buffers.panel.data())) % 64;
    }
    layout_->pack(panel, buffers.pointers.data(), int32_t(rows), int64_t(columns_));
    if (panel != out) std::memcpy(out, panel, panel_bytes_);
  }

  void pad_rows(char* out, const char* stored, uint64_t rows) const {
    const uint64_t bytes = rows_.row_bytes(), padded = panel_bytes_ / panel_rows_;
    for (uint64_t r = 0; r < rows; r++, out += padded) {
      std::memcpy(out, stored + r * bytes, bytes);
      std::memset(out + bytes, 0, padded - bytes);
    }
    std::memset(out, 0, (panel_rows_ - rows) * padded);
  }

  const ix_layout* layout_;
  WeightRows rows_;
  uint64_t columns_, rows_per_stack_, panel_rows_, panel_bytes_, panels_per_stack_;
};

// Where pieces are packed: in place where the device's memory is the host's; else in memory that its copies reach, two
// parts a thread, of which one is filled while the other one is copied.
class Staging {
 public:
  Staging(std::shared_ptr<Device> device, int threads, uint64_t bytes)
      : device_(std::move(device)), bytes_(bytes), lanes_(device_->has_host_memory() ? 0 : threads) {}
  ~Staging() {
    for (Lane& lane : lanes_)
      for (Part& part : lane.parts) try {
          if (part.memory.data()) part.copied.wait();
        } catch (const Error&) {
          // whoever loads learns it from synchronize
        }
  }

  template <class Fill>
  void put(int thread, char* to, uint64_t bytes, Fill&& fill) {
    if (lanes_.empty()) return fill(to);
    Lane& lane = lanes_[thread];
    Part& part = lane.parts[lane.turn ^= 1];
    if (!part.memory.data()) {
      std::lock_guard lock(mutex_);
      part.copied = Mark(device_);
      part.memory = HostMemory(device_, bytes_);
    }
    part.copied.wait();
    fill(part.memory.data());
    std::lock_guard lock(mutex_);
    device_->copy(to, part.memory.data(), bytes);
    part.copied.record();
  }

 private:
  struct Part {
    HostMemory memory;
    Mark copied;
  };
  struct Lane {
    Part parts[2];
    int turn = 0;
  };
  std::shared_ptr<Device> device_;
  uint64_t bytes_;
  std::mutex mutex_;
  std::vector<Lane> lanes_;
};

// Runs f(task, thread) in parallel; the first exception of any task is thrown again here.
void parallel_tasks(int threads, int tasks, const std::function<void(int, int)>& f) {
  struct Shared {
    const std::function<void(int, int)>& f;
    std::mutex mutex;
    std::exception_ptr error;
    std::atomic<bool> failed{false};
  } shared{f, {}, {}, {}};
  ThreadPool::Lease lease(ThreadPool::instance(), threads);
  lease.run(
      tasks,
      [](void* ctx, int task, int thread) {
        auto& s = *static_cast<Shared*>(ctx);
        if (s.failed) return;
        try {
          s.f(task, thread);
        } catch (...) {
          std::lock_guard lock(s.mutex);
          if (!s.error) s.error = std::current_exception();
          s.failed = true;
        }
      },
      &shared);
  if (shared.error) std::rethrow_exception(shared.error);
}

}  // namespace

WeightSet::WeightSet(std::shared_ptr<Device> device, const std::vector<PlanWeight>& weights,
                     const Checkpoint& checkpoint, LoadProgress& progress) {
  const TensorTable tensors(checkpoint);
  std::vector<Packed> packed;
  packed.reserve(weights.size());
  uint64_t end = 0;
  for (const PlanWeight& weight : weights) {
    const Packed& p = packed.emplace_back(*device, weight, tensors);
    offsets_.push_back(end);
    bytes_ += p.bytes;
    end += (p.bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  progress.total += bytes_;
  device->require_memory(double(end));
  memory_ = DeviceMemory(device, end);

  struct Piece {
    uint32_t weight;
    uint64_t panel, panels;
    uint64_t bytes;
  };
  std::vector<Piece> pieces;
  uint64_t largest = 0;
  for (uint32_t w = 0; w < packed.size(); w++)
    for (uint64_t panel = 0; panel < packed[w].panels;) {
      const uint64_t count = std::min(packed[w].panels_per_piece, packed[w].panels - panel);
      pieces.push_back({w, panel, count, count * packed[w].panel_bytes()});
      largest = std::max(largest, pieces.back().bytes);
      panel += count;
    }

  const int threads = device->num_threads();
  Staging staging(device, threads, largest);
  std::vector<Packed::Buffers> buffers(threads);
  for (size_t first = 0, last; first < pieces.size(); first = last) {
    uint64_t bytes = 0;
    for (last = first; last < pieces.size() && bytes < kSectionBytes; last++) bytes += pieces[last].bytes;
    parallel_tasks(threads, int(last - first), [&](int task, int thread) {
      if (progress.cancel) throw Error("IX_ABORTED", "loading was cancelled");
      const Piece& piece = pieces[first + task];
      const Packed& p = packed[piece.weight];
      char* const to = memory_.data() + offsets_[piece.weight] + piece.panel * p.panel_bytes();
      staging.put(thread, to, piece.bytes, [&](char* out) { p.pack(out, piece.panel, piece.panels, buffers[thread]); });
      progress.loaded += piece.bytes;
    });
  }
  device->synchronize();
}

// ---- the process-wide store ----------------------------------------------------
namespace {
struct Entry {
  bool loading = false;
  std::weak_ptr<const WeightSet> set;
};
struct Store {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, Entry> entries;
};
Store& store() {
  static Store* s = new Store;  // outlives every thread
  return *s;
}
}  // namespace

std::shared_ptr<const WeightSet> acquire_weights(const std::string& key, std::shared_ptr<Device> device,
                                                 const std::vector<PlanWeight>& weights, const Checkpoint& checkpoint,
                                                 LoadProgress& progress) {
  Store& s = store();
  std::unique_lock lock(s.mutex);
  Entry& entry = s.entries[key];  // entries are never removed: a key is small
  for (;;) {
    if (auto set = entry.set.lock()) {
      progress.total = set->bytes();  // first: nobody sees more loaded than there is
      progress.loaded = progress.total.load();
      return set;
    }
    if (!entry.loading) break;
    s.changed.wait_for(lock, std::chrono::milliseconds(20));
    if (progress.cancel) throw Error("IX_ABORTED", "loading was cancelled");
  }
  entry.loading = true;
  lock.unlock();
  std::shared_ptr<const WeightSet> set;
  std::exception_ptr error;
  try {
    set = std::make_shared<const WeightSet>(std::move(device), weights, checkpoint, progress);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  entry.loading = false;
  entry.set = set;
  s.changed.notify_all();
  if (error) std::rethrow_exception(error);
  return set;
}

}  // namespace ix
