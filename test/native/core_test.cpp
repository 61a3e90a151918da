// The native core without an addon: thread pool, files and memory, dtypes, plans and steps that are refused.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/backends.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/executor.h"
#include "core/plan.h"
#include "core/platform.h"
#include "core/signature.h"
#include "core/thread_pool.h"

namespace {

int failures = 0;
long checks = 0;

void check(bool ok, const char* what, long detail = 0) {
  checks++;
  if (ok) return;
  if (++failures <= 30) std::printf("FAILED: %s (%ld)\n", what, detail);
}

// The code that a call fails with; "" if it does not.
std::string code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const ix::Error& error) {
    return error.code();
  }
  return "";
}

// ---- thread pool -----------------------------------------------------------------

struct Count {
  std::vector<std::atomic<int>> ran;
  int threads;
  std::atomic<int> strangers{0};
  Count(int chunks, int threads) : ran(size_t(chunks)), threads(threads) {}
};

void run_counted(ix::ThreadPool::Lease& lease, int chunks, int threads) {
  Count count(chunks, threads);
  lease.run(
      chunks,
      [](void* ctx, int chunk, int thread) {
        auto& c = *static_cast<Count*>(ctx);
        c.ran[size_t(chunk)]++;
        if (thread < 0 || thread >= c.threads) c.strangers++;
      },
      &count);
  for (int i = 0; i < chunks; i++) check(count.ran[size_t(i)] == 1, "every chunk runs once", i);
  check(count.strangers == 0, "thread numbers stay below the lease's", threads);
}

void test_thread_pool() {
  ix::ThreadPool& pool = ix::ThreadPool::instance();
  std::mt19937 random(1);
  for (int i = 0; i < 300; i++) {
    const int threads = 1 + int(random() % 4);
    ix::ThreadPool::Lease lease(pool, threads);
    for (int k = 0; k < 5; k++) run_counted(lease, int(random() % 40), threads);
  }
  {
    ix::ThreadPool::Lease lease(pool, 3);
    run_counted(lease, (1 << 20) + 5, 3);  // more than a word of the pool can count
  }
  // Two threads that take turns, with limits of their own.
  std::vector<std::thread> callers;
  for (const int threads : {2, 4})
    callers.emplace_back([&pool, threads] {
      for (int i = 0; i < 300; i++) {
        ix::ThreadPool::Lease lease(pool, threads);
        long sum[4] = {};
        lease.run(50, [](void* ctx, int chunk, int thread) { static_cast<long*>(ctx)[thread] += chunk; }, sum);
        if (sum[0] + sum[1] + sum[2] + sum[3] != 50 * 49 / 2 || (threads == 2 && (sum[2] || sum[3]))) std::abort();
      }
    });
  for (std::thread& t : callers) t.join();
  ix::ThreadPool::Lease lease(pool, 2);  // threads that slept in between
  usleep(20'000);
  run_counted(lease, 1000, 2);
}

// ---- platform ------------------------------------------------------------------------

void test_files(const std::string& folder) {
  ix::platform::File missing, directory;
  check(code_of([&] { missing.open(folder + "/none"); }) == "IX_FILE_NOT_FOUND", "a missing file");
  check(code_of([&] { directory.open(folder); }) == "IX_FILE_READ", "a directory");
  const std::string path = folder + "/file";
  std::ofstream(path) << "0123456789";
  ix::platform::File file;
  file.open(path);
  check(file.size() == 10, "size of a file");
  char text[11] = {};
  file.read(text, 0, 10);
  check(std::string(text) == "0123456789", "a file's bytes");
  file.read(text, 9, 1);
  check(text[0] == '9', "the last byte");
  file.read(text, 10, 0);
  check(code_of([&] { file.read(text, 9, 2); }) == "IX_FILE_CHANGED", "beyond the end");
  check(!code_of([&] { file.read(text, ~uint64_t(0) - 4, 2); }).empty(), "an offset that is no offset");
  check(truncate(path.c_str(), 4) == 0 && code_of([&] { file.read(text, 2, 5); }) == "IX_FILE_CHANGED",
        "a file truncated while it is open");
  // replaced: the open one stays what it was
  std::ofstream(folder + "/other") << "abcd";
  check(std::rename((folder + "/other").c_str(), path.c_str()) == 0, "rename");
  file.read(text, 0, 4);
  check(std::memcmp(text, "0123", 4) == 0, "a replaced file");
  std::string why;
  check(!ix::platform::load_symbol(folder + "/none.so", "x", &why) && !why.empty(), "a library that is not there");
}

void test_memory() {
  for (const size_t bytes : {size_t(1), size_t(64), size_t(4095), size_t(4096), size_t(1) << 20, (size_t(2) << 20) - 1,
                             size_t(2) << 20, (size_t(2) << 20) + 1, size_t(5'000'001)}) {
    auto* p = static_cast<unsigned char*>(ix::platform::alloc_pages(bytes));
    check(p != nullptr, "memory", long(bytes));
    if (!p) continue;
    check(reinterpret_cast<uintptr_t>(p) % (bytes < size_t(2) << 20 ? 4096 : size_t(2) << 20) == 0,
          "alignment of memory", long(bytes));
    bool zero = true;
    for (size_t i = 0; i < bytes; i++) zero = zero && p[i] == 0;
    check(zero, "memory begins as zeros", long(bytes));
    p[0] = p[bytes - 1] = 1;
    ix::platform::free_pages(p, bytes);
  }
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 2 + 1, size_t(1) << 60})
    check(!ix::platform::alloc_pages(bytes), "absurd sizes", long(bytes));
  check(ix::platform::usable_cores() >= 1 && ix::platform::usable_cores() <= 4096, "cores");
  check(ix::platform::total_memory() > 1 << 20 && ix::platform::free_memory() <= ix::platform::total_memory(),
        "memory of the machine");
}

// ---- dtypes ---------------------------------------------------------------------------

void test_dtypes() {
  const ix::Dtype *f16 = ix::find_dtype("f16"), *bf16 = ix::find_dtype("bf16");
  check(f16 && bf16 && !ix::find_dtype("f64") && !ix::find_dtype(""), "names of dtypes");
  for (uint32_t bits = 0; bits < 65536; bits++) {
    const int exponent = int(bits >> 10 & 31), mantissa = int(bits & 1023);
    double wanted = exponent == 31 ? (mantissa ? NAN : INFINITY)
                    : exponent     ? std::ldexp(1024 + mantissa, exponent - 25)
                                   : std::ldexp(mantissa, -24);
    if (bits & 0x8000) wanted = -wanted;
    const uint16_t half = uint16_t(bits);
    float value;
    ix::row_to_f32(*f16, &half, 1, &value);
    const bool same =
        std::isnan(wanted) ? std::isnan(value) : value == wanted && std::signbit(value) == std::signbit(wanted);
    check(same, "f16 to f32", long(bits));
    ix::row_to_f32(*bf16, &half, 1, &value);
    check(std::bit_cast<uint32_t>(value) == bits << 16, "bf16 to f32", long(bits));
  }
  uint8_t block[34] = {0x00, 0x38};  // scale 0.5
  for (int i = 0; i < 32; i++) block[2 + i] = uint8_t(i - 16);
  float out[32];
  ix::row_to_f32(*ix::find_dtype("q8_0"), block, 32, out);
  for (int i = 0; i < 32; i++) check(out[i] == 0.5f * float(i - 16), "q8_0 to f32", i);
}

// ---- plans -----------------------------------------------------------------------------

// Writes plans as docs/plan.md describes them, with sections in any content.
struct PlanFile {
  static constexpr uint32_t kWidths[14] = {1, 24, 48, 40, 40, 4, 48, 40, 16, 48, 16, 32, 48, 8};
  std::vector<uint8_t> sections[14];
  uint32_t bounds[3] = {4, 2, 2};
  uint64_t arena_bytes = 0, input_bytes = 0;

  template <class T>
  static void put(std::vector<uint8_t>& out, T value) {
    const auto* p = reinterpret_cast<const uint8_t*>(&value);
    out.insert(out.end(), p, p + sizeof value);
  }
  void u32(int s, std::initializer_list<uint32_t> values) {
    for (uint32_t v : values) put(sections[s], v);
  }
  void u64(int s, std::initializer_list<uint64_t> values) {
    for (uint64_t v : values) put(sections[s], v);
  }
  void str(int s, const std::string& text) {
    u32(s, {uint32_t(sections[0].size()), uint32_t(text.size())});
    sections[0].insert(sections[0].end(), text.begin(), text.end());
  }
  void operand(uint32_t space, uint32_t index, uint32_t type, std::vector<int32_t> dims, uint64_t offset,
               uint64_t stride) {
    u32(12, {space, index, type, uint32_t(dims.size())});
    dims.resize(4);
    for (int32_t d : dims) put(sections[12], d);
    u64(12, {offset, stride});
  }
  std::vector<uint8_t> bytes() const {
    std::vector<uint8_t> out(72);
    uint64_t at = 72 + 14 * 16;
    for (int s = 0; s < 14; s++) {
      put(out, at);
      put(out, uint32_t(sections[s].size() / kWidths[s]));
      put(out, kWidths[s]);
      at = (at + sections[s].size() + 7) & ~uint64_t(7);
    }
    for (const auto& section : sections) {
      out.insert(out.end(), section.begin(), section.end());
      out.resize((out.size() + 7) & ~size_t(7));
    }
    seal(out, bounds, arena_bytes, input_bytes);
    return out;
  }
  static void seal(std::vector<uint8_t>& out, const uint32_t* bounds, uint64_t arena_bytes, uint64_t input_bytes) {
    uint64_t hash = 0xcbf29ce484222325ull;
    for (size_t i = 72; i < out.size(); i++) hash = (hash ^ out[i]) * 0x100000001b3ull;
    std::vector<uint8_t> header = {'I', 'X', 'P', 'L'};
    for (uint32_t v : {1u, 0u, 0u, 1u, 14u}) put(header, v);
    put(header, uint64_t(out.size()));
    put(header, hash);
    for (int i = 0; i < 3; i++) put(header, bounds[i]);
    put(header, 0u);
    put(header, arena_bytes);
    put(header, input_bytes);
    std::copy(header.begin(), header.end(), out.begin());
  }
};

// x[T,8] = embed(tokens); y = scale(x, 2). Outputs y.
PlanFile small_plan() {
  PlanFile p;
  p.arena_bytes = 2 * 4 * 32 * 4;
  p.input_bytes = 64;
  for (const char* signature :
       {"embed(ids: i32[T], w: p32_f32[V,D]) -> f32[T,D]", "scale(x: f32[T,D], factor: f32) -> f32[T,D]"}) {
    p.str(1, signature);
    p.str(1, "");
    p.str(1, "");
  }
  p.str(2, "w");
  p.str(2, "p32_f32");
  p.u32(2, {2, 5, 8, 0, 0, 0, 1, 0});
  p.str(3, "");  // rows of zeros
  p.u64(3, {0, 5});
  p.u32(3, {0, 0});
  PlanFile::put(p.sections[3], 1.0);
  p.str(6, "tokens");
  p.u32(6, {1, 1, uint32_t(-1), 0, 0, 0});
  p.u64(6, {4, 0});
  p.str(8, "y");
  p.u32(8, {0, 5});
  p.str(10, "forward");
  p.u32(10, {0, 2});
  p.str(10, "sample");
  p.u32(10, {2, 0});
  p.u32(11, {0, 0, 3, 0, 0, 0});
  p.str(11, "embed");
  p.u32(11, {1, 3, 2, 0, 1, 0});
  p.str(11, "scale");
  p.operand(2, 0, 1, {-1}, 0, 1);
  p.operand(4, 0, 3, {5, 8}, 0, 8);
  p.operand(1, 0, 0, {-1, 8}, 0, 32);
  p.operand(1, 0, 0, {-1, 8}, 0, 32);
  p.operand(1, 0, 0, {-1, 8}, 512, 32);
  p.operand(1, 0, 0, {-1, 8}, 512, 32);
  PlanFile::put(p.sections[13], 2.0);
  return p;
}

void refused(const std::vector<uint8_t>& bytes, const char* what, long detail = 0) {
  check(code_of([&] { const ix::Plan plan{bytes}; }) == "IX_PLAN", what, detail);
}

void test_plans() {
  std::mt19937 random(7);
  for (int i = 0; i < 3000; i++) {
    std::vector<uint8_t> bytes(random() % 600);
    for (uint8_t& b : bytes) b = uint8_t(random());
    refused(bytes, "random bytes", i);
    if (bytes.size() < 72) continue;
    const uint32_t bounds[3] = {uint32_t(random() % 100), uint32_t(random() % 100), uint32_t(random() % 100)};
    PlanFile::seal(bytes, bounds, random(), random());
    refused(bytes, "random bytes behind a sound header", i);
  }
  const std::vector<uint8_t> sound = small_plan().bytes();
  check(code_of([&] { const ix::Plan plan{sound}; }).empty(), "a sound plan");
  for (size_t size = 0; size < sound.size(); size++) {
    std::vector<uint8_t> cut(sound.begin(), sound.begin() + ptrdiff_t(size));
    if (size >= 72) PlanFile::seal(cut, small_plan().bounds, 1024, 64);
    refused(cut, "a plan cut short", long(size));
  }
  const auto damaged = [](const char* what, const std::function<void(PlanFile&)>& change) {
    PlanFile p = small_plan();
    change(p);
    refused(p.bytes(), what);
  };
  const auto set = [](PlanFile& p, int section, size_t at, uint32_t value) {
    std::memcpy(p.sections[section].data() + at, &value, 4);
  };
  damaged("read before it is written", [&](PlanFile& p) { set(p, 12, 3 * 48 + 32, 512); });
  damaged("a result over an operand", [&](PlanFile& p) { set(p, 12, 4 * 48 + 32, 128); });
  damaged("outside of the arena", [&](PlanFile& p) { p.arena_bytes -= 32 * 4; });
  damaged("a wider operand than what was written", [&](PlanFile& p) { set(p, 12, 3 * 48 + 20, 9); });
  damaged("rows of another dimension", [&](PlanFile& p) { set(p, 12, 3 * 48 + 16, uint32_t(-3)); });
  damaged("a weight of another layout", [&](PlanFile& p) { p.sections[2][8] ^= 1; });
  damaged("a stride inside a row", [&](PlanFile& p) { set(p, 12, 0 * 48 + 40, 0); });
  damaged("more tokens than the input holds", [&](PlanFile& p) { p.bounds[0] = 5; });
  damaged("an output of the other program", [&](PlanFile& p) { set(p, 8, 8, 1); });
  damaged("no scalar", [&](PlanFile& p) { set(p, 11, 32 + 16, 0); });
  for (int s = 0; s < 14; s++)
    if (!small_plan().sections[s].empty() && s != 0 && s != 8)
      damaged("a section without records", [&](PlanFile& p) { p.sections[s].clear(); });
  for (const char* text : {"", "f", "f()", "(", ") -> (", "f(a) -> b", "f(: f32) -> f32", "f(a: ) -> ",
                           "f(a: f32[T) -> f32[T]", ",", "f(a: [,) -> ]"})
    code_of([&] { ix::parse_signature(text); });  // some outcome, no crash
}

// ---- steps ------------------------------------------------------------------------------

void test_executor() {
  const auto device = std::make_shared<ix::Device>(ix::find_backend("cpu", ""), 0, 2);
  const auto plan = std::make_shared<const ix::Plan>(small_plan().bytes());
  ix::LoadProgress progress;
  const auto weights = std::make_shared<const ix::WeightSet>(device, plan->weights, ix::Checkpoint{}, progress);
  check(progress.loaded == progress.total && weights->bytes() == progress.total, "progress of a load");
  check(code_of([&] { ix::Executor(device, plan, weights, {{1}, false}); }) == "IX_INVALID_ARGUMENT",
        "blocks for groups that are not there");
  ix::Executor executor(device, plan, weights, {{}, true});

  std::vector<uint8_t> inputs(plan->input_bytes);
  const auto submit = [&](uint32_t tokens, std::vector<int32_t> commands) {
    return executor.submit({{tokens, 0, 0}, inputs.data(), commands.data(), commands.size(), 1});
  };
  const std::vector<std::vector<int32_t>> bad = {{0},
                                                 {7},
                                                 {-1},
                                                 {1},
                                                 {1, 0, 0, 0, 0},
                                                 {2, 0, 0, 0},
                                                 {3, 0},
                                                 {4, 0, 1, 1},
                                                 {4, 0, 1 << 30},
                                                 {5, 0, -1},
                                                 {6, 0, 1, 2},
                                                 {7, 0, 0},
                                                 {8, 0, 0, 0},
                                                 {9, 0, 0, 0},
                                                 {10, 0, 0, 0}};
  for (size_t i = 0; i < bad.size(); i++)
    check(code_of([&] { submit(1, bad[i]); }) == "IX_INVALID_ARGUMENT", "a command that is not sound", long(i));
  for (const uint32_t tokens : {5u, ~0u})
    check(code_of([&] { submit(tokens, {}); }) == "IX_INVALID_ARGUMENT", "too many tokens", long(tokens));
  check(code_of([&] { executor.wait(1); }) == "IX_INVALID_ARGUMENT", "nothing to wait for");
  for (int i = 0; i < 50; i++) {
    const uint32_t tokens = uint32_t(i % 5);
    const uint64_t ticket = submit(tokens, {});
    executor.wait(ticket);
    const ix::Executor::Output output = executor.output(ticket, 0);
    check(output.rows == tokens && output.columns == 8, "shape of an output", i);
    check(code_of([&] { executor.output(ticket, 1); }) == "IX_INVALID_ARGUMENT", "an output that is not there");
  }
  submit(4, {});
  submit(4, {});
  executor.close();
  check(code_of([&] { submit(1, {}); }) == "IX_DISPOSED", "a step after the end");
  executor.close();
  PlanFile large = small_plan();
  large.arena_bytes = uint64_t(1) << 46;
  const auto absurd = std::make_shared<const ix::Plan>(large.bytes());
  check(code_of([&] { ix::Executor(device, absurd, weights, {{}, false}); }) == "IX_OUT_OF_MEMORY",
        "an arena larger than the machine");
}

}  // namespace

int main() {
  char folder[] = "/tmp/inferx-core-XXXXXX";
  if (!mkdtemp(folder)) return 1;
  test_thread_pool();
  test_files(folder);
  test_memory();
  test_dtypes();
  test_plans();
  test_executor();
  std::remove((std::string(folder) + "/file").c_str());
  rmdir(folder);
  std::printf("%ld checks, %d failures\n", checks, failures);
  return failures ? 1 : 0;
}
