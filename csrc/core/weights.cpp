#include "core/weights.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "core/dtype.h"
#include "core/thread_pool.h"

namespace ix {
namespace {

// A checkpoint tensor whose range was checked against its file, seen as rows.
struct Source {
  const platform::File* file;
  uint64_t offset;
  const Dtype* dtype;
  uint64_t rows, columns, row_bytes;
};

Source open_source(const CheckpointTensor& tensor, const std::vector<platform::File>& files) {
  const char* name = tensor.name.c_str();
  const Dtype* dtype = find_dtype(tensor.dtype);
  if (!dtype) fail("IX_UNSUPPORTED_FORMAT", "tensor %s has type %s, which has no kernels", name, tensor.dtype.c_str());
  if (tensor.file >= files.size())
    fail("IX_MODEL_FORMAT", "tensor %s names file %u of %zu", name, tensor.file, files.size());
  uint64_t elements = 1;
  for (uint64_t d : tensor.dims)
    if (d == 0 || __builtin_mul_overflow(elements, d, &elements))
      fail("IX_MODEL_FORMAT", "tensor %s has an impossible shape", name);
  const uint64_t columns = tensor.dims.size() > 1 ? tensor.dims.back() : 1;
  if (tensor.dims.size() > 1 && columns % dtype->block_elements)
    fail("IX_MODEL_FORMAT", "tensor %s: rows of %llu are no multiple of the block of %s", name,
         (unsigned long long)columns, tensor.dtype.c_str());
  if (tensor.dims.size() <= 1 && dtype->block_elements != 1)
    fail("IX_MODEL_FORMAT", "tensor %s: a vector cannot have type %s", name, tensor.dtype.c_str());
  const uint64_t row_bytes = columns / dtype->block_elements * dtype->block_bytes, rows = elements / columns;
  const platform::File& file = files[tensor.file];
  uint64_t bytes;
  if (__builtin_mul_overflow(rows, row_bytes, &bytes) || bytes != tensor.bytes || tensor.offset > file.size() ||
      file.size() - tensor.offset < bytes)
    fail("IX_MODEL_FORMAT", "tensor %s lies outside of %s", name, file.path().c_str());
  return {&file, tensor.offset, dtype, rows, columns, row_bytes};
}

// One source of a weight, bound to its tensor.
struct Run {
  const PlanSource* plan;
  std::optional<Source> source;  // none: rows of zeros
  uint64_t first;                // row of the weight at which the run starts
  std::vector<char> turned;      // of a transposed tensor: all of it, turned

  // Rows were permuted per head as llama.cpp does: row (h, half, i) of the architecture is row (h, i, half) of the
  // file.
  uint64_t file_row(uint64_t row) const {
    const uint64_t wanted = plan->row_start + row;
    if (!plan->rope_heads) return wanted;
    const uint64_t width = (plan->transposed ? source->columns : source->rows) / plan->rope_heads,
                   head = wanted / width, r = wanted % width;
    return head * width + r % (width / 2) * 2 + r / (width / 2);
  }
};

class WeightLoader {
 public:
  WeightLoader(const PlanWeight& weight, const ix_layout* layout, std::vector<Run> runs)
      : weight_(weight),
        layout_(layout),
        runs_(std::move(runs)),
        columns_(weight.columns()),
        dtype_(find_dtype(layout ? layout->source : "f32")),
        row_bytes_(columns_ / dtype_->block_elements * dtype_->block_bytes) {}

  // Fills out with rows [first, first + count), each row_bytes long, in the layout's source type.
  void read_rows(uint64_t first, uint64_t count, char* out, std::vector<char>& scratch) const {
    for (uint64_t done = 0; done < count;) {
      const Run& run = *std::prev(std::upper_bound(runs_.begin(), runs_.end(), first + done,
                                                   [](uint64_t row, const Run& r) { return row < r.first; }));
      const uint64_t start = first + done - run.first;
      const uint64_t rows = std::min(count - done, run.plan->row_count - start);
      read_run(run, start, rows, out + done * row_bytes_, scratch);
      done += rows;
    }
  }
  uint64_t row_bytes() const { return row_bytes_; }

 private:
  void read_run(const Run& run, uint64_t start, uint64_t rows, char* out, std::vector<char>& scratch) const {
    if (!run.source) {
      std::memset(out, 0, rows * row_bytes_);
      return;
    }
    const Source& source = *run.source;
    const PlanSource& plan = *run.plan;
    const bool verbatim = source.dtype == dtype_ && !plan.add_one && plan.scale == 1;
    const uint64_t at_once = plan.rope_heads ? 1 : rows;  // rows that lie together in the file
    const uint64_t stored_bytes = columns_ / source.dtype->block_elements * source.dtype->block_bytes;
    for (uint64_t r = 0; r < rows; r += at_once, out += at_once * row_bytes_) {
      const uint64_t row = run.file_row(start + r);
      if (!verbatim) scratch.resize(at_once * stored_bytes);
      char* const stored = verbatim ? out : scratch.data();
      if (plan.transposed)
        std::memcpy(stored, run.turned.data() + row * stored_bytes, at_once * stored_bytes);
      else
        source.file->read(stored, source.offset + row * stored_bytes, at_once * stored_bytes);
      if (verbatim) continue;
      float* values = reinterpret_cast<float*>(out);
      row_to_f32(*source.dtype, stored, at_once * columns_, values);
      if (plan.scale != 1 || plan.add_one)
        for (uint64_t i = 0; i < at_once * columns_; i++)
          values[i] = values[i] * plan.scale + (plan.add_one ? 1.0f : 0.0f);
    }
  }

  const PlanWeight& weight_;
  const ix_layout* layout_;
  std::vector<Run> runs_;
  uint64_t columns_;
  const Dtype* dtype_;
  uint64_t row_bytes_;
};

// A matrix as one vector, or as one row, where its type allows: norms with a vector per head are stored so.
Source as_rows(Source source, uint64_t columns, bool transposed) {
  const uint64_t elements = source.rows * source.columns;
  const bool flat = columns == 1 || columns == elements;
  if (transposed || !flat || source.columns == columns || source.dtype->block_elements != 1) return source;
  source.rows = elements / columns;
  source.columns = columns;
  source.row_bytes = columns * source.dtype->block_bytes;
  return source;
}

// Binds a weight's sources to tensors, checking that rows and columns fit.
std::vector<Run> bind_sources(const PlanWeight& weight, const Dtype& dtype,
                              const std::map<std::string_view, Source>& tensors) {
  std::vector<Run> runs;
  uint64_t next = 0;
  const std::string name(weight.name);
  for (const PlanSource& plan : weight.sources) {
    Run run{&plan, std::nullopt, next, {}};
    next += plan.row_count;
    if (!plan.tensor.empty()) {
      const auto found = tensors.find(plan.tensor);
      if (found == tensors.end()) fail("IX_MODEL_FORMAT", "tensor %s is missing", std::string(plan.tensor).c_str());
      const Source& s = run.source.emplace(as_rows(found->second, weight.columns(), plan.transposed));
      const uint64_t rows = plan.transposed ? s.columns : s.rows, columns = plan.transposed ? s.rows : s.columns;
      const bool converts = plan.add_one || plan.scale != 1 || s.dtype != &dtype;
      if (columns != weight.columns() || plan.row_start > rows || rows - plan.row_start < plan.row_count)
        fail("IX_MODEL_FORMAT", "tensor %s does not have the shape that weight %s needs",
             std::string(plan.tensor).c_str(), name.c_str());
      if (converts && dtype.name != "f32")
        fail("IX_PLAN", "weight %s: only f32 layouts can be converted to while loading", name.c_str());
      if (plan.rope_heads && rows % (2 * uint64_t(plan.rope_heads)))
        fail("IX_MODEL_FORMAT", "tensor %s does not divide into %u heads", std::string(plan.tensor).c_str(),
             plan.rope_heads);
      if (plan.transposed) {
        if (s.dtype->block_elements != 1)
          fail("IX_UNSUPPORTED_FORMAT", "tensor %s: a block format cannot be transposed",
               std::string(plan.tensor).c_str());
        const size_t element = s.dtype->block_bytes;
        std::vector<char> stored(s.rows * s.row_bytes);
        s.file->read(stored.data(), s.offset, stored.size());
        run.turned.resize(stored.size());
        for (uint64_t r = 0; r < s.rows; r++)
          for (uint64_t c = 0; c < s.columns; c++)
            std::memcpy(run.turned.data() + (c * s.rows + r) * element, stored.data() + (r * s.columns + c) * element,
                        element);
      }
    }
    runs.push_back(std::move(run));
  }
  if (next != weight.rows())
    fail("IX_PLAN", "the load program of weight %s gives %llu rows of %llu", name.c_str(), (unsigned long long)next,
         (unsigned long long)weight.rows());
  return runs;
}

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

WeightSet::WeightSet(std::shared_ptr<Device> device, const Plan& plan, const Checkpoint& checkpoint,
                     LoadProgress& progress) {
  std::vector<platform::File> files(checkpoint.files.size());
  for (size_t i = 0; i < files.size(); i++) files[i].open(checkpoint.files[i]);
  std::map<std::string_view, Source> tensors;
  for (const CheckpointTensor& tensor : checkpoint.tensors) tensors.emplace(tensor.name, open_source(tensor, files));

  struct Placed {
    const ix_layout* layout;
    uint64_t panel_bytes, panel_rows, panels, rows_per_stack;
    uint64_t bytes;
  };
  std::vector<Placed> placed;
  double bytes = 0;
  for (const PlanWeight& w : plan.weights) {
    const std::string layout_name(w.layout);
    const ix_layout* layout = w.layout == "f32" ? nullptr : device->find_layout(layout_name);
    if (!layout && w.layout != "f32")
      fail("IX_PLAN", "weight %s: there is no layout %s", std::string(w.name).c_str(), layout_name.c_str());
    const uint64_t stacks = w.rank == 3 ? uint64_t(w.dims[0]) : 1, rows = w.rows() / stacks;
    const uint64_t panel_rows = layout ? uint64_t(layout->panel_rows) : rows;  // plain f32: one panel
    const uint64_t panel_bytes = layout ? layout->panel_bytes(int64_t(w.columns())) : rows * w.columns() * 4;
    const uint64_t panels = stacks * ((rows + panel_rows - 1) / panel_rows);
    placed.push_back({layout, panel_bytes, panel_rows, panels, rows, panels * panel_bytes});
    progress.total += panels * panel_bytes;
    bytes += double(panels) * double(panel_bytes);
  }
  device->require_memory(bytes);

  const int threads = device->num_threads();
  for (size_t i = 0; i < placed.size(); i++) {
    const PlanWeight& w = plan.weights[i];
    const Placed& p = placed[i];
    memory_.emplace_back(device, p.bytes);
    const Dtype* dtype = find_dtype(p.layout ? p.layout->source : "f32");
    if (!dtype) fail("IX_PLAN", "layout %s packs an unknown type", p.layout->name);
    if (w.columns() % dtype->block_elements)
      fail("IX_PLAN", "weight %s: rows of %llu are no multiple of the block of %s", std::string(w.name).c_str(),
           (unsigned long long)w.columns(), p.layout->source);
    const WeightLoader loader(w, p.layout, bind_sources(w, *dtype, tensors));
    const uint64_t per_task = std::max<uint64_t>(1, (uint64_t(1) << 20) / std::max<uint64_t>(1, p.panel_bytes));
    const uint64_t panels_per_stack = (p.rows_per_stack + p.panel_rows - 1) / p.panel_rows;
    char* const destination = memory_.back().data();
    parallel_tasks(threads, int((p.panels + per_task - 1) / per_task), [&](int task, int) {
      if (progress.cancel) throw Error("IX_ABORTED", "loading was cancelled");
      std::vector<char> rows, scratch, packed;
      std::vector<const void*> pointers(p.layout ? p.panel_rows : 0);
      for (uint64_t panel = task * per_task; panel < std::min(p.panels, (task + 1) * per_task); panel++) {
        const uint64_t in_stack = panel % panels_per_stack * p.panel_rows;
        const uint64_t first = panel / panels_per_stack * p.rows_per_stack + in_stack,
                       count = std::min(p.panel_rows, p.rows_per_stack - in_stack);
        rows.resize(count * loader.row_bytes());
        loader.read_rows(first, count, rows.data(), scratch);
        const char* source = rows.data();
        if (p.layout) {
          for (uint64_t r = 0; r < count; r++) pointers[r] = rows.data() + r * loader.row_bytes();
          // panels are aligned to cache lines in their layout, so they are packed in place only where they lie that way
          packed.resize(p.panel_bytes + 64);
          char* aligned = packed.data() + (64 - reinterpret_cast<uintptr_t>(packed.data()) % 64) % 64;
          p.layout->pack(aligned, pointers.data(), int32_t(count), int64_t(w.columns()));
          source = aligned;
        }
        ix_error error{};
        if (device->backend().upload(device->handle(), destination + panel * p.panel_bytes, source, p.panel_bytes,
                                     &error) != 0)
          raise(error);
        progress.loaded += p.panel_bytes;
      }
    });
  }
  device->synchronize();
}

uint64_t WeightSet::bytes() const {
  uint64_t sum = 0;
  for (const DeviceMemory& m : memory_) sum += m.bytes();
  return sum;
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
                                                 const Plan& plan, const Checkpoint& checkpoint,
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
    set = std::make_shared<const WeightSet>(std::move(device), plan, checkpoint, progress);
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
