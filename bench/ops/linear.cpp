// Speed of linear at the shapes of a 0.6B model: us, GB/s of weights, GOP/s, and the share of the read bandwidth that
// is measured in the same run. Weights never come from a cache: each product takes the next of enough copies.
// Arguments: formats ("q4_k", "bf16_f32", default all), "threads=2", "tokens=1,8,512", "shape=NxK".
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "cpu/kernel.h"

#define FOR_BLOCK_FORMATS(X) X(q8_0) X(q4_0) X(q4_1) X(q5_0) X(q5_1) X(q4_k) X(q5_k) X(q6_k)
#define KERNEL(name) IX_CONCAT(ix_kernel_, name, INFERX_ISA)
#define LAYOUT(name) IX_CONCAT(ix_layout_, name, INFERX_ISA)
#define DECLARE(x)                        \
  extern const ix_layout LAYOUT(p32_##x); \
  extern const ix_kernel KERNEL(linear_##x);
#define DECLARE_BOTH(x) DECLARE(x) extern const ix_kernel KERNEL(linear_##x##_f32);
DECLARE(f32)
DECLARE(f16)
DECLARE_BOTH(bf16)
FOR_BLOCK_FORMATS(DECLARE_BOTH)

struct Case {
  const char* name;
  const ix_layout* layout;
  const ix_kernel* kernel;
};
#define CASE(x) {#x, &LAYOUT(p32_##x), &KERNEL(linear_##x)},
#define BOTH_CASES(x) CASE(x){#x "_f32", &LAYOUT(p32_##x), &KERNEL(linear_##x##_f32)},
static const Case kCases[] = {CASE(f32) CASE(f16) BOTH_CASES(bf16) FOR_BLOCK_FORMATS(BOTH_CASES)};

static double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Threads that spin between sections: the shortest dispatch, for measurements only. A section's claims carry its
// number, so a thread that wakes late takes nothing.
struct SpinningThreads : ix_stream {
  explicit SpinningThreads(int n) {
    num_threads = n;
    run = [](ix_stream* s, int chunks, void (*fn)(void*, int, int), void* ctx) {
      static_cast<SpinningThreads*>(s)->section(chunks, fn, ctx);
    };
    for (int t = 1; t < n; t++) {
      threads.emplace_back([this, t] {
        for (uint64_t seen = 0; !stop;) {
          const uint64_t now = word.load(std::memory_order_acquire) >> 40;
          if (now == seen) continue;
          seen = now;
          work(t);
        }
      });
    }
  }
  ~SpinningThreads() {
    stop = true;
    for (auto& t : threads) t.join();
  }
  void section(int chunks, void (*f)(void*, int, int), void* c) {
    fn = f, ctx = c;
    done = 0;
    word.store(((word >> 40) + 1) << 40 | uint64_t(chunks) << 20);
    work(0);
    while (done.load(std::memory_order_acquire) < chunks) {
    }
  }
  void work(int thread) {
    constexpr uint64_t kMask = (1 << 20) - 1;
    for (;;) {
      const uint64_t w = word.fetch_add(1);
      if ((w & kMask) >= (w >> 20 & kMask)) return;
      fn(ctx, int(w & kMask), thread);
      done.fetch_add(1, std::memory_order_release);
    }
  }
  std::atomic<uint64_t> word{0};  // section | chunks:20 | next:20
  std::atomic<int> done{0};
  std::atomic<bool> stop{false};
  void (*fn)(void*, int, int) = nullptr;
  void* ctx = nullptr;
  std::vector<std::thread> threads;
};

static uint8_t* pages(size_t bytes) {
  constexpr size_t kHuge = size_t(2) << 20;
  bytes = (bytes + 65536 + kHuge - 1) & ~(kHuge - 1);
  auto* p = static_cast<uint8_t*>(std::aligned_alloc(kHuge, bytes));
  madvise(p, bytes, MADV_HUGEPAGE);
  std::memset(p, 0, bytes);
  return p;
}

// The best of several: other programs can only make a run slower.
template <class F>
static double best_seconds(F&& f, int reps) {
  double best = 1e9;
  for (int i = 0; i <= reps; i++) {  // the first one warms up
    const double start = now();
    f();
    if (i > 0) best = std::min(best, now() - start);
  }
  return best;
}

static double read_bandwidth(ix_stream& stream) {  // GB/s, of windows small enough to pass between two time slices
  constexpr size_t kWindow = size_t(32) << 20, kWindows = 8;
  static const uint8_t* data = pages(kWindow * kWindows);
  std::atomic<uint64_t> sink{0};
  size_t window = 0;
  const auto read = [&] {
    const uint8_t* from = data + window++ % kWindows * kWindow;
    ix::cpu::parallel(&stream, 32, [&](int chunk, int) {
      typedef uint64_t Lanes __attribute__((vector_size(64)));
      const auto* p = reinterpret_cast<const Lanes*>(from + kWindow / 32 * chunk);
      Lanes sum[4]{};
      for (size_t i = 0; i < kWindow / 32 / 64; i += 4) {
        for (int j = 0; j < 4; j++) sum[j] += p[i + j];
      }
      sum[0] += sum[1] + sum[2] + sum[3];
      sink += sum[0][0] + sum[0][7];
    });
  };
  return kWindow / best_seconds(read, 60) / 1e9;
}

int main(int argc, char** argv) {
  std::vector<std::string> formats;
  std::vector<int> tokens{1, 8, 512};
  std::vector<std::pair<int, int>> shapes{{4096, 1024}, {1024, 2048}, {6144, 1024}, {1024, 3072}, {151936, 1024}};
  int threads = int(std::thread::hardware_concurrency());
  for (int i = 1; i < argc; i++) {
    const std::string a = argv[i];
    int n = 0, k = 0;
    if (a.rfind("threads=", 0) == 0)
      threads = std::atoi(&a[8]);
    else if (std::sscanf(a.c_str(), "shape=%dx%d", &n, &k) == 2)
      shapes = {{n, k}};
    else if (a.rfind("tokens=", 0) == 0) {
      tokens.clear();
      for (const char* p = &a[7]; *p; p += *p == ',') tokens.push_back(int(std::strtol(p, const_cast<char**>(&p), 10)));
    } else
      formats.push_back(a);
  }
  SpinningThreads stream(threads);
  std::printf(
      "%d threads\n| format | N x K | tokens | us | GB/s | of read bandwidth | GOP/s "
      "|\n|---|---|---|---|---|---|---|\n",
      threads);
  for (const Case& c : kCases) {
    if (!formats.empty() && std::find(formats.begin(), formats.end(), c.name) == formats.end()) continue;
    for (auto [n, k] : shapes) {
      const size_t panels = (n + 31) / 32, bytes = panels * c.layout->panel_bytes(k);
      const int copies = int(std::clamp<size_t>((size_t(160) << 20) / bytes, 1, 100));
      const size_t row_bytes = 4 * k;  // at least that of any source
      uint8_t* weights = pages(bytes * copies);
      std::vector<uint8_t> row(row_bytes * 32);
      for (size_t i = 0; i < row.size(); i++)
        row[i] = i % 2 ? 0x28 | (i / 2 * 37 % 4) : uint8_t(i * 71);  // sane as f16, bf16 and f32
      const void* rows[32];
      for (int r = 0; r < 32; r++) rows[r] = &row[row_bytes * r];
      c.layout->pack(weights, rows, 32, k);
      for (size_t p = 1; p < panels * copies; p++)
        std::memcpy(weights + p * c.layout->panel_bytes(k), weights, c.layout->panel_bytes(k));
      for (int t : tokens) {
        if (n > 100000 && t > 64) continue;  // a head sees few rows
        std::vector<float> x(size_t(t) * k), y(size_t(t) * panels * 32);
        for (size_t i = 0; i < x.size(); i++) x[i] = float(i * 7919 % 2003) / 1000 - 1;
        ix_tensor operands[4] = {
            {x.data(), 2, {t, k}, k}, {weights, 2, {n, k}, 0}, {}, {y.data(), 2, {t, n}, int64_t(panels) * 32}};
        ix_kernel_call call{operands, nullptr, nullptr};
        const size_t workspace = c.kernel->workspace(&call, threads);
        call.workspace = pages(workspace);
        const double once = best_seconds([&] { c.kernel->launch(&stream, &call); }, 1);
        const int products = int(std::clamp(0.003 / once, 1.0, double(copies)));
        int next = 0;
        const double bandwidth = read_bandwidth(stream);
        const auto several = [&] {
          for (int i = 0; i < products; i++) {
            operands[1].data = weights + size_t(next++ % copies) * bytes;
            c.kernel->launch(&stream, &call);
          }
        };
        const double s = best_seconds(several, int(std::clamp(0.4 / once / products, 5.0, 100.0))) / products;
        std::printf("| %s | %d x %d | %d | %.0f | %.1f | %.0f %% of %.0f | %.0f |\n", c.name, n, k, t, s * 1e6,
                    bytes / s / 1e9, 100 * bytes / s / 1e9 / bandwidth, bandwidth, 2.0 * n * k * t / s / 1e9);
        std::fflush(stdout);
        std::free(call.workspace);
      }
      std::free(weights);
    }
  }
}
