// Loading weights to a device whose memory is its own and whose copies are done late: every kind of source and layout
// ends where it should, staged parts are not written while a copy still reads them, and failures leave nothing behind.
#include "core/weights.h"

#include <cstdio>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>

namespace {

int failures = 0;
void check(bool holds, const char* what) {
  if (holds) return;
  failures++;
  std::fprintf(stderr, "FAILED: %s\n", what);
}
template <class F>
std::string code_of(F&& f) {
  try {
    f();
  } catch (const ix::Error& error) {
    return error.code();
  }
  return "";
}

// ---- the device ---------------------------------------------------------------------------

struct Copy {
  char* to;
  const char* from;
  size_t bytes;
};
struct State {
  std::mutex mutex;
  std::deque<Copy> waiting;
  size_t launched = 0, done = 0, fails_at = SIZE_MAX;
  std::set<void*> memory;
} state;

// Does the copies up to number `last`: as late as a mark allows.
void run_until(size_t last) {
  for (; state.done < last; state.done++, state.waiting.pop_front())
    std::memcpy(state.waiting.front().to, state.waiting.front().from, state.waiting.front().bytes);
}
int32_t refuse(ix_error* error) {
  error->code = "IX_DEVICE";
  std::snprintf(error->text, sizeof error->text, "refused");
  return -1;
}

void* reserve(size_t bytes, int filler) {
  void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(memory, filler, bytes);
  std::lock_guard lock(state.mutex);
  state.memory.insert(memory);
  return memory;
}
void* alloc(ix_device*, size_t bytes, ix_error*) { return reserve(bytes, 0xcc); }  // whoever relies on zeros is found
void* alloc_host(ix_device*, size_t bytes, ix_error*) { return reserve(bytes, 0xdd); }
void release(ix_device*, void* memory, size_t) {
  std::lock_guard lock(state.mutex);
  state.memory.erase(memory);
  std::free(memory);
}
int32_t copy(ix_device*, void* to, size_t, const void* from, size_t, size_t bytes, size_t, ix_error* error) {
  std::lock_guard lock(state.mutex);
  if (state.launched >= state.fails_at) return refuse(error);
  state.waiting.push_back({static_cast<char*>(to), static_cast<const char*>(from), bytes});
  state.launched++;
  return 0;
}
ix_mark* make_mark(ix_device*, ix_error*) { return reinterpret_cast<ix_mark*>(new size_t(0)); }
void free_mark(ix_device*, ix_mark* mark) { delete reinterpret_cast<size_t*>(mark); }
int32_t record(ix_device*, ix_mark* mark, ix_error*) {
  std::lock_guard lock(state.mutex);
  *reinterpret_cast<size_t*>(mark) = state.launched;
  return 0;
}
int32_t wait(ix_device*, ix_mark* mark, ix_error*) {
  std::lock_guard lock(state.mutex);
  run_until(*reinterpret_cast<size_t*>(mark));
  return 0;
}
int32_t synchronize(ix_device*, ix_error*) {
  std::lock_guard lock(state.mutex);
  run_until(state.launched);
  return 0;
}

// Panels of 4 rows: as they are stored, padded to 128 bytes; and one element of each row after the other.
size_t padded_bytes(int64_t columns) { return size_t((columns * 2 + 127) / 128 * 128) * 4; }
size_t mixed_bytes(int64_t columns) { return size_t(columns) * 2 * 4; }
void mix(void* panel, const void* const* rows, int32_t num_rows, int64_t columns) {
  for (int64_t c = 0; c < columns; c++)
    for (int r = 0; r < 4; r++) {
      const uint16_t value = r < num_rows ? static_cast<const uint16_t*>(rows[r])[c] : 0;
      std::memcpy(static_cast<char*>(panel) + (c * 4 + r) * 2, &value, 2);
    }
}
constexpr ix_layout kPadded = {"padded", "bf16", 4, padded_bytes, nullptr};
constexpr ix_layout kMixed = {"mixed", "bf16", 4, mixed_bytes, mix};
constexpr const ix_layout* kLayouts[] = {&kPadded, &kMixed};

ix_backend backend() {
  ix_backend b{};
  b.abi = IX_BACKEND_ABI;
  b.name = "far";
  b.device_info = [](int32_t, ix_device_info*, ix_error*) { return 0; };
  b.open = [](int32_t, const ix_device_options*, ix_error*) { return reinterpret_cast<ix_device*>(&state); };
  b.close = [](ix_device*) {};
  b.layouts = [](ix_device*, uint32_t* count) -> const ix_layout* const* { return *count = 2, kLayouts; };
  b.num_threads = [](ix_device*) { return 3; };
  b.alloc = alloc, b.free = release, b.alloc_host = alloc_host, b.free_host = release;
  b.copy = copy, b.synchronize = synchronize;
  b.make_mark = make_mark, b.free_mark = free_mark, b.record = record, b.wait = wait;
  return b;
}

// ---- what is loaded -----------------------------------------------------------------------

constexpr uint32_t kSeed = 5;
ix::CheckpointTensor tensor(const char* name, const char* dtype, std::vector<uint64_t> dims) {
  return {name, dtype, 0, 0, 0, std::move(dims)};
}
// All elements of a tensor, as they are stored.
std::vector<uint16_t> stored(const ix::CheckpointTensor& t) {
  uint64_t count = 1;
  for (uint64_t d : t.dims) count *= d;
  std::vector<uint16_t> values(count);
  ix::RandomTensor(kSeed, t.name, t.dims, *ix::find_dtype(t.dtype)).fill(values.data(), 0, count);
  return values;
}
ix::PlanWeight weight(const char* layout, std::vector<int32_t> dims, std::vector<ix::PlanSource> sources) {
  ix::PlanWeight w;
  w.name = "w", w.layout = layout, w.rank = uint32_t(dims.size());
  std::copy(dims.begin(), dims.end(), w.dims);
  w.sources = std::move(sources);
  return w;
}
ix::PlanSource rows(const char* tensor, uint64_t start, uint64_t count) {
  return {tensor, start, count, 0, false, false, 1};
}

// Element (row, column) of a packed weight of `per_stack` rows a stack.
uint16_t at(const char* data, bool padded, uint64_t row, uint64_t column, uint64_t columns, uint64_t per_stack) {
  const uint64_t panels = (per_stack + 3) / 4, stack = row / per_stack, r = row % per_stack;
  const size_t bytes = padded ? padded_bytes(int64_t(columns)) : mixed_bytes(int64_t(columns));
  const char* panel = data + (stack * panels + r / 4) * bytes;
  uint16_t value;
  std::memcpy(&value, padded ? panel + r % 4 * (bytes / 4) + column * 2 : panel + (column * 4 + r % 4) * 2, 2);
  return value;
}

void test_matrices(const std::shared_ptr<ix::Device>& device) {
  const ix::CheckpointTensor a = tensor("a.weight", "bf16", {4099, 1024}), b = tensor("b.weight", "bf16", {70, 33}),
                             c = tensor("c.weight", "bf16", {6, 5, 64}), d = tensor("d.weight", "bf16", {64, 600});
  const std::vector<uint16_t> values[] = {stored(a), stored(b), stored(c), stored(d)};
  ix::PlanSource turned = rows("d.weight", 0, 600), permuted = rows("b.weight", 8, 40);
  turned.transposed = true;
  permuted.rope_heads = 5;  // heads of 14 rows
  for (const char* layout : {"padded", "mixed"}) {
    const bool padded = layout[0] == 'p';
    const std::vector<ix::PlanWeight> weights = {
        weight(layout, {4099, 1024}, {rows("a.weight", 0, 4099)}),  // several pieces
        weight(layout, {77, 33}, {rows("b.weight", 30, 40), rows("", 0, 7), rows("b.weight", 0, 30)}),
        weight(layout, {6, 5, 64}, {rows("c.weight", 0, 30)}),
        weight(layout, {600, 64}, {turned}),
        weight(layout, {40, 33}, {permuted}),
    };
    ix::LoadProgress progress;
    const ix::WeightSet set(device, weights, {{}, {a, b, c, d}, kSeed}, progress);
    check(progress.loaded == progress.total && set.bytes() == progress.total, "progress");
    const auto data = [&](uint32_t w) { return static_cast<const char*>(set.data(w)); };
    const auto all = [&](uint32_t w, uint64_t n, uint64_t k, uint64_t per_stack, const char* what, auto&& wanted) {
      bool good = true;
      for (uint64_t r = 0; r < n; r++)
        for (uint64_t col = 0; col < k; col++)
          good = good && at(data(w), padded, r, col, k, per_stack) == wanted(r, col);
      check(good, what);
    };
    all(0, 4099, 1024, 4099, "a matrix of several pieces",
        [&](uint64_t r, uint64_t col) { return values[0][r * 1024 + col]; });
    all(1, 77, 33, 77, "rows of several sources", [&](uint64_t r, uint64_t col) -> uint16_t {
      return r < 40 ? values[1][(r + 30) * 33 + col] : r < 47 ? 0 : values[1][(r - 47) * 33 + col];
    });
    all(2, 30, 64, 5, "a stack", [&](uint64_t r, uint64_t col) { return values[2][r * 64 + col]; });
    all(3, 600, 64, 600, "a transposed matrix", [&](uint64_t r, uint64_t col) { return values[3][col * 600 + r]; });
    all(4, 40, 33, 40, "permuted rows", [&](uint64_t r, uint64_t col) {
      const uint64_t head = (r + 8) / 14, half = (r + 8) % 14 / 7, j = (r + 8) % 14 % 7;
      return values[1][(head * 14 + j * 2 + half) * 33 + col];
    });
    if (!padded) continue;
    bool zeros = true;  // behind rows, behind the last row, in each stack
    for (uint64_t r = 0; r < 77; r++)
      for (uint64_t col = 33; col < 64; col++) zeros = zeros && at(data(1), true, r, col, 33, 80) == 0;
    for (uint64_t r = 77; r < 80; r++) zeros = zeros && at(data(1), true, r, 0, 33, 80) == 0;
    for (uint64_t s = 0; s < 6; s++)
      for (uint64_t r = 5; r < 8; r++) zeros = zeros && at(data(2), true, s * 8 + r, 63, 64, 8) == 0;
    check(zeros, "padding");
  }
}

void test_vectors(const std::shared_ptr<ix::Device>& device) {
  const ix::CheckpointTensor norm = tensor("norm.weight", "bf16", {70000});
  ix::PlanSource source = rows("norm.weight", 1000, 69000);
  source.scale = 0.5f, source.add_one = true;
  ix::LoadProgress progress;
  const ix::WeightSet set(device, {weight("f32", {69000}, {source})}, {{}, {norm}, kSeed}, progress);
  const std::vector<uint16_t> values = stored(norm);
  bool good = true;
  for (int i = 0; i < 69000; i++) {
    const uint32_t bits = uint32_t(values[i + 1000]) << 16;
    float wanted, value;
    std::memcpy(&wanted, &bits, 4);
    std::memcpy(&value, static_cast<const char*>(set.data(0)) + i * 4, 4);
    good = good && value == wanted * 0.5f + 1;
  }
  check(good, "a vector, converted");
}

void test_failures(const std::shared_ptr<ix::Device>& device) {
  const ix::Checkpoint checkpoint{{}, {tensor("a.weight", "bf16", {20000, 1024})}, kSeed};
  const std::vector<ix::PlanWeight> weights = {weight("mixed", {20000, 1024}, {rows("a.weight", 0, 20000)})};
  for (size_t after : {0, 1, 5}) {
    ix::LoadProgress progress;
    state.fails_at = state.launched + after;
    check(code_of([&] { ix::WeightSet(device, weights, checkpoint, progress); }) == "IX_DEVICE", "a copy that fails");
  }
  state.fails_at = SIZE_MAX;
  ix::LoadProgress progress;
  progress.cancel = true;
  check(code_of([&] { ix::WeightSet(device, weights, checkpoint, progress); }) == "IX_ABORTED",
        "a load that is cancelled");
  check(state.memory.empty(), "memory after failures");
}

}  // namespace

int main() {
  const ix_backend far = backend();
  const auto device = std::make_shared<ix::Device>(&far, 0, 3);
  test_matrices(device);
  test_vectors(device);
  test_failures(device);
  if (failures == 0) std::puts("weights: all checks hold");
  return failures > 0;
}
