// Checks and times the linear kernels of the CUDA library through its C table: every kernel for float weights against sums in double, over
// numbers of tokens and odd sizes, and then microseconds and TB/s of weights on the shapes of an 8B model.
//   g++ -O2 -std=c++20 -Icsrc bench/gpu/linear.cpp -o <program> -ldl && <program> build/Release/inferx_cuda.so
#include <dlfcn.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/backend_abi.h"

namespace {

const ix_backend* backend;
ix_device* device;

void require(bool condition, const ix_error& error) {
  if (condition) return;
  std::printf("%s: %s\n", error.code, error.text);
  std::exit(1);
}

float rounded(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((u + 0x7FFF + (u >> 16 & 1)) & 0xFFFF0000u);
}

struct Memory {
  char* data;
  size_t bytes;
  explicit Memory(size_t n) : bytes(n) {
    ix_error error{};
    data = static_cast<char*>(backend->alloc(device, n, &error));
    require(data, error);
  }
  Memory(const Memory&) = delete;
  ~Memory() { backend->free(device, data, bytes); }
  void set(const void* from, size_t count, size_t at = 0) {
    ix_error error{};
    require(backend->upload(device, data + at, from, count, &error) == 0, error);
  }
};

void synchronize() {
  ix_error error{};
  require(backend->synchronize(device, &error) == 0, error);
}

// The weights of one matrix of a layout, packed from random rows; `values` are what they stand for.
struct Matrix {
  int n, k;
  std::vector<float> values;
  std::vector<char> packed;
  Matrix(const ix_layout& layout, int n, int k, std::mt19937& random) : n(n), k(k), values(size_t(n) * k) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    const bool wide = !std::strcmp(layout.source, "f32");
    std::vector<uint16_t> narrow(values.size());
    for (size_t i = 0; i < values.size(); i++) {
      values[i] = rounded(uniform(random));
      narrow[i] = uint16_t(std::bit_cast<uint32_t>(values[i]) >> 16);
    }
    const size_t bytes = layout.panel_bytes(k);
    const int panels = (n + layout.panel_rows - 1) / layout.panel_rows;
    packed.resize(bytes * panels);
    std::vector<const void*> rows(layout.panel_rows);
    for (int p = 0; p < panels; p++) {
      const int count = std::min(layout.panel_rows, n - p * layout.panel_rows);
      for (int r = 0; r < count; r++) {
        const size_t at = size_t(p * layout.panel_rows + r) * k;
        rows[r] = wide ? static_cast<const void*>(&values[at]) : &narrow[at];
      }
      layout.pack(packed.data() + p * bytes, rows.data(), count, k);
    }
  }
};

struct Kernel {
  const ix_kernel* kernel;
  const ix_layout* layout;
  bool rounds() const { return std::strstr(kernel->tags, "bf16"); }
};

ix_tensor table(void* data, int rows, int columns, int stride) { return {data, 2, {rows, columns, 0, 0}, stride}; }

double check(const Kernel& kernel, int tokens, int n, int k, std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  const Matrix matrix(*kernel.layout, n, k, random);
  const int ldx = (k + 31) / 32 * 32 + 32, ldy = (n + 31) / 32 * 32;
  std::vector<float> x(size_t(tokens) * ldx, NAN), bias(n), y(size_t(tokens) * ldy, NAN), out(y.size());
  for (int t = 0; t < tokens; t++)
    for (int i = 0; i < k; i++) x[size_t(t) * ldx + i] = uniform(random);
  for (float& b : bias) b = uniform(random);
  Memory dw(matrix.packed.size()), dx(x.size() * 4), db(bias.size() * 4), dy(y.size() * 4);
  dw.set(matrix.packed.data(), matrix.packed.size());
  dx.set(x.data(), x.size() * 4);
  db.set(bias.data(), bias.size() * 4);
  dy.set(y.data(), y.size() * 4);
  synchronize();
  const ix_tensor operands[] = {table(dx.data, tokens, k, ldx), table(dw.data, n, k, k), {db.data, 1, {n, 0, 0, 0}, 1}, table(dy.data, tokens, n, ldy)};
  ix_kernel_call call{operands, nullptr, nullptr};
  Memory workspace(std::max<size_t>(64, kernel.kernel->workspace ? kernel.kernel->workspace(&call, 1) : 0));
  call.workspace = workspace.data;
  kernel.kernel->launch(backend->stream(device), &call);
  ix_error error{};
  char* host = static_cast<char*>(backend->alloc_host(device, out.size() * 4, &error));
  require(host && backend->copy(device, host, out.size() * 4, dy.data, out.size() * 4, out.size() * 4, 1, &error) == 0, error);
  synchronize();
  std::memcpy(out.data(), host, out.size() * 4);
  backend->free_host(device, host, out.size() * 4);
  double worst = 0, largest = 0;
  for (int t = 0; t < tokens; t++)
    for (int r = 0; r < n; r++) {
      double sum = bias[r];
      for (int i = 0; i < k; i++) sum += double(kernel.rounds() ? rounded(x[size_t(t) * ldx + i]) : x[size_t(t) * ldx + i]) * matrix.values[size_t(r) * k + i];
      const double difference = std::fabs(sum - out[size_t(t) * ldy + r]);
      worst = difference <= worst ? worst : difference;  // NaN stays
      largest = std::max(largest, std::fabs(sum));
    }
  return worst / largest;
}

// microseconds of a launch; copies of the weights take turns, so that they do not lie in L2
double time(const Kernel& kernel, int tokens, int n, int k) {
  std::mt19937 random(1);
  const Matrix piece(*kernel.layout, kernel.layout->panel_rows, k, random);
  const size_t bytes = piece.packed.size() * size_t((n + piece.n - 1) / piece.n);
  const int copies = int(std::max<size_t>(1, (size_t(256) << 20) / bytes + 1)), launches = 40;
  Memory w(bytes * copies), x(size_t(tokens) * k * 4), y(size_t(tokens) * n * 4);
  for (size_t at = 0; at < bytes * copies; at += piece.packed.size()) w.set(piece.packed.data(), piece.packed.size(), at);
  std::vector<float> values(size_t(tokens) * k);
  for (float& v : values) v = std::uniform_real_distribution<float>(-1, 1)(random);
  x.set(values.data(), values.size() * 4);
  ix_tensor operands[] = {table(x.data, tokens, k, k), table(w.data, n, k, k), {}, table(y.data, tokens, n, n)};
  ix_kernel_call call{operands, nullptr, nullptr};
  Memory workspace(std::max<size_t>(64, kernel.kernel->workspace ? kernel.kernel->workspace(&call, 1) : 0));
  call.workspace = workspace.data;
  double best = 1e30;
  for (int repeat = 0; repeat < 4; repeat++) {
    synchronize();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < launches; i++) {
      operands[1].data = w.data + bytes * size_t(i % copies);
      kernel.kernel->launch(backend->stream(device), &call);
    }
    synchronize();
    best = std::min(best, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / launches);
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  void* library = dlopen(argc > 1 ? argv[1] : "build/Release/inferx_cuda.so", RTLD_NOW);
  if (!library) return std::printf("%s\n", dlerror()), 1;
  ix_error error{};
  backend = reinterpret_cast<ix_backend_entry_fn>(dlsym(library, "inferx_backend_entry"))(IX_BACKEND_ABI);
  const ix_device_options options{};
  device = backend->open(0, &options, &error);
  require(device, error);
  std::vector<Kernel> kernels;
  uint32_t num_kernels, num_layouts;
  const ix_kernel* const* all = backend->kernels(device, &num_kernels);
  const ix_layout* const* layouts = backend->layouts(device, &num_layouts);
  for (uint32_t i = 0; i < num_kernels; i++)
    for (uint32_t l = 0; l < num_layouts; l++)
      if (std::string(all[i]->signature).starts_with("linear(") && std::strstr(all[i]->signature, layouts[l]->name) && std::strcmp(layouts[l]->source, "f16")) kernels.push_back({all[i], layouts[l]});

  std::mt19937 random(7);
  int failures = 0, checks = 0;
  for (const Kernel& kernel : kernels)
    for (int tokens : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 50, 64, 65, 130})
      for (auto [n, k] : {std::pair{33, 64}, {257, 1000}, {1000, 515}, {130, 4096}, {3000, 130}}) {
        const double wrong = check(kernel, tokens, n, k, random);
        checks++;
        if (wrong < 1e-5) continue;  // thousands of f32 sums one after the other
        failures++;
        std::printf("FAILED %s [%s]: %d tokens, %d x %d: error %.2g\n", kernel.layout->name, kernel.kernel->tags, tokens, n, k, wrong);
      }
  std::printf("linear: %d of %d checks passed\n", checks - failures, checks);

  for (const Kernel& kernel : kernels) {
    if (std::strcmp(kernel.layout->source, "bf16")) continue;
    std::printf("%s [%s], us (TB/s of weights)\n%18s", kernel.layout->name, kernel.kernel->tags, "");
    for (int tokens : {1, 8, 16, 32, 64, 512}) std::printf("%17d", tokens);
    for (auto [n, k] : {std::pair{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}}) {
      std::printf("\n%8d x %-7d", n, k);
      for (int tokens : {1, 8, 16, 32, 64, 512}) {
        const double us = time(kernel, tokens, n, k);
        std::printf("%9.1f (%5.2f)", us, double(n) * k * 2 / us / 1e6);
      }
    }
    std::printf("\n");
  }
  backend->close(device);
  return failures > 0;
}
