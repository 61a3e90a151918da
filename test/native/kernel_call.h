// What the tests of CPU kernels share: tensors with poisoned padding, calls by name, threads, checks. Not a test
// itself.
#pragma once
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "cpu/backend.h"
#include "cpu/stream.h"

namespace test {

inline int failures = 0;
inline long checks = 0;
#define CHECK(condition, ...)                                     \
  do {                                                            \
    test::checks++;                                               \
    if (!(condition) && ++test::failures <= 30) {                 \
      std::printf("%s:%d: %s: ", __FILE__, __LINE__, #condition); \
      std::printf(__VA_ARGS__);                                   \
      std::printf("\n");                                          \
    }                                                             \
  } while (0)

inline int report() {
  std::printf("%s: %ld checks, %d failures\n", ix::cpu::isa_table().name, checks, failures);
  return failures ? 1 : 0;
}

struct Random {
  uint64_t state;
  explicit Random(uint64_t seed) : state(seed * 0x9E3779B97F4A7C15ull + 1) {}
  uint32_t next() {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return uint32_t(state >> 16);
  }
  int below(int n) { return int(next() % uint32_t(n)); }
  float gauss() {
    double sum = -3;
    for (int i = 0; i < 6; i++) sum += next() * (1.0 / 4294967296.0);
    return float(sum * 1.41421356);
  }
};

// A row-major table, rows padded to 32 elements. Padding holds NaN (or a mark), and writing to it is a fault.
template <class T>
struct Table {
  int rows, cols, stride;
  std::vector<T> data;

  static T mark() {
    if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::quiet_NaN();
    return T(0x7ABCDEF1);
  }
  Table(int rows, int cols)
      : rows(rows), cols(cols), stride((cols + 31) / 32 * 32), data(size_t(rows + 1) * stride, mark()) {}
  template <class F>
  Table(int rows, int cols, F&& fill) : Table(rows, cols) {
    for (int r = 0; r < rows; r++)
      for (int c = 0; c < cols; c++) at(r, c) = T(fill(r, c));
  }
  T& at(int r, int c) { return data[size_t(r) * stride + c]; }
  T at(int r, int c) const { return data[size_t(r) * stride + c]; }
  operator ix_tensor() { return {data.data(), 2, {rows, cols, 0, 0}, stride}; }
  bool padding_kept() const {
    const T m = mark();
    for (int r = 0; r <= rows; r++)
      for (int c = r < rows ? cols : 0; c < stride; c++)
        if (std::memcmp(&data[size_t(r) * stride + c], &m, sizeof m)) return false;
    return true;
  }
};
using Floats = Table<float>;
using Ints = Table<int32_t>;

template <class T>
ix_tensor list(std::vector<T>& v) {
  return {v.data(), 1, {int32_t(v.size()), 0, 0, 0}, 1};
}
inline ix_tensor omitted() { return {nullptr, 1, {0, 0, 0, 0}, 1}; }
inline ix_attr integer(int64_t i) {
  ix_attr a;
  a.i = i;
  return a;
}
inline ix_attr real(double f) {
  ix_attr a;
  a.f = f;
  return a;
}

struct Threads : ix_stream {
  explicit Threads(int n) {
    num_threads = n;
    run = [](ix_stream* self, int chunks, void (*fn)(void*, int, int), void* ctx) {
      std::atomic<int> next{0};
      std::vector<std::thread> threads;
      for (int t = 0; t < self->num_threads; t++)
        threads.emplace_back([&, t] {
          for (int c = next++; c < chunks; c = next++) fn(ctx, c, t);
        });
      for (auto& t : threads) t.join();
    };
  }
};

// The kernel of this op whose signature contains `type` (a cache type), of the instruction set in use.
inline const ix_kernel& find(const std::string& op, const char* type = "") {
  const ix::cpu::IsaTable& table = ix::cpu::isa_table();
  for (uint32_t i = 0; i < table.num_kernels; i++) {
    const char* signature = table.kernels[i]->signature;
    if (!std::strncmp(signature, (op + "(").c_str(), op.size() + 1) && std::strstr(signature, type))
      return *table.kernels[i];
  }
  std::printf("no kernel for %s %s\n", op.c_str(), type);
  std::exit(1);
}

inline void call(const ix_kernel& kernel, const std::vector<ix_tensor>& operands, const std::vector<ix_attr>& attrs,
                 int threads = 2) {
  Threads stream(threads);
  ix_kernel_call c{operands.data(), attrs.data(), nullptr};
  const size_t bytes = kernel.workspace ? kernel.workspace(&c, threads) : 0;
  std::vector<unsigned char> space(bytes + 192, 0xFF);  // NaN to whoever reads before writing; a fence behind
  unsigned char* start = space.data() + (64 - reinterpret_cast<uintptr_t>(space.data()) % 64) % 64;
  c.workspace = bytes ? start : nullptr;
  kernel.launch(&stream, &c);
  for (int i = 0; i < 64; i++) CHECK(start[bytes + i] == 0xFF, "%s wrote behind its workspace", kernel.signature);
}
inline void call(const std::string& op, const std::vector<ix_tensor>& operands, const std::vector<ix_attr>& attrs,
                 int threads = 2) {
  call(find(op), operands, attrs, threads);
}

// Every element of y is within `tolerance` * max(1, |expected|) of expected(r, c), and padding is as it was.
template <class F>
void compare(const char* what, const Floats& y, double tolerance, F&& expected) {
  for (int r = 0; r < y.rows; r++)
    for (int c = 0; c < y.cols; c++) {
      const double e = expected(r, c), v = y.at(r, c);
      CHECK(std::isnan(e) ? std::isnan(v) : v == e || std::fabs(v - e) <= tolerance * std::fmax(1, std::fabs(e)),
            "%s [%d,%d] of [%d,%d]: %.9g, expected %.9g", what, r, c, y.rows, y.cols, v, e);
    }
  CHECK(y.padding_kept(), "%s wrote to padding", what);
}

}  // namespace test
