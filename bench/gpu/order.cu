// Kernels without the tag order=batch on the GPU: the bits of a row's results must be the same for every number of rows in the call, and
// wherever the row lies; of attention, however a sequence is cut into steps. gemm.cu has the products in bf16.
#include <cmath>
#include <cstring>

#include "measure.cuh"

using Bf16 = __nv_bfloat16;
extern const ix_kernel ix_kernel_rms_norm_cuda, ix_kernel_layer_norm_cuda, ix_kernel_add_rms_norm_cuda, ix_kernel_linear_f32_ordered_cuda, ix_kernel_linear_ordered_cuda,
    ix_kernel_attention_f32_ordered_cuda, ix_kernel_attention_bf16_ordered_cuda, ix_kernel_softmax_cuda;

namespace {
int failed = 0, done = 0;
void require(bool good, const char* what, int a, int b) {
  done++;
  if (!good) failed++, std::printf("FAILED %s, %d of %d\n", what, a, b);
}

struct Device {
  ix_stream stream = new_stream();
  Memory<uint32_t> counters{kStreamCounters};
  Memory<char> workspace{64 << 20};
  Device() { counters.bytes(0), stream.counters = counters.data; }
  void launch(const ix_kernel& kernel, const ix_tensor* operands, const ix_attr* attrs) {
    const ix_kernel_call call{operands, attrs, workspace.data};
    kernel.launch(&stream, &call);
    CHECK(cudaStreamSynchronize(stream.handle));
    if (stream.error[0]) failed++, std::printf("FAILED %s\n", stream.error), stream.error[0] = 0;
  }
};

constexpr int kAll = 1500;
// `make(first, rows, y)` launches a kernel on some of kAll rows.
template <class F>
void check_rows(const char* name, int columns, F make) {
  Memory<float> whole(size_t(kAll) * columns), part(whole.count);
  make(0, kAll, whole.data);
  const std::vector<float> want = whole.get();
  for (int rows : {1, 2, 3, 5, 8, 16, 17, 40, 64, 65, 131, 200, 263, 264, 300, 600, 1024}) {
    const int first = rows * 37 % (kAll - rows);
    part.bytes(0xff);
    make(first, rows, part.data);
    require(!std::memcmp(part.get().data(), want.data() + size_t(first) * columns, size_t(rows) * columns * 4), name, rows, columns);
  }
}

void check_norms(Device& d) {
  for (int width : {64, 512, 896, 1024, 2560, 4096, 4100, 8192, 18432, 1001}) {
    Memory<float> x(size_t(kAll) * width), a(x.count), w(width), b(width), sum(x.count);
    x.fill(2, 1), a.fill(3, 2), w.fill(1, 3), b.fill(1, 4);
    ix_attr attrs[2];
    const ix_tensor weight{w.data, 1, {width}, 1}, bias{b.data, 1, {width}, 1};
    auto rows = [&](float* data, int first, int count) { return ix_tensor{data + size_t(first) * width, 2, {count, width}, width}; };
    attrs[0].i = 1, attrs[1].f = 1e-5;
    check_rows("rms_norm", width, [&](int first, int count, float* y) {
      const ix_tensor t[] = {rows(x.data, first, count), weight, rows(y, 0, count)};
      d.launch(ix_kernel_rms_norm_cuda, t, attrs);
    });
    check_rows("layer_norm", width, [&](int first, int count, float* y) {
      const ix_tensor t[] = {rows(x.data, first, count), weight, bias, rows(y, 0, count)};
      d.launch(ix_kernel_layer_norm_cuda, t, attrs);
    });
    ix_attr eps;
    eps.f = 1e-5;
    check_rows("add_rms_norm", width, [&](int first, int count, float* y) {
      const ix_tensor t[] = {rows(x.data, first, count), rows(a.data, first, count), weight, rows(sum.data, 0, count), rows(y, 0, count)};
      d.launch(ix_kernel_add_rms_norm_cuda, t, &eps);
    });
    check_rows("softmax", width, [&](int first, int count, float* y) {
      const ix_tensor t[] = {rows(x.data, first, count), rows(y, 0, count)};
      d.launch(ix_kernel_softmax_cuda, t, nullptr);
    });
  }
}

void check_linear(Device& d) {
  const int n = 200, k = 576;
  Memory<float> x(size_t(kAll) * k), w(size_t(256) * k), bias(n);
  Memory<Bf16> w16(w.count);
  x.fill(1, 1), w.fill(1, 2), w16.fill(1, 2), bias.fill(1, 3);
  for (const ix_kernel* kernel : {&ix_kernel_linear_f32_ordered_cuda, &ix_kernel_linear_ordered_cuda})
    check_rows(kernel->tags, n, [&](int first, int count, float* y) {
      void* weights = kernel == &ix_kernel_linear_ordered_cuda ? static_cast<void*>(w16.data) : w.data;
      const ix_tensor t[] = {{x.data + size_t(first) * k, 2, {count, k}, k}, {weights, 2, {n, k}, 0}, {bias.data, 1, {n}, 1}, {y, 2, {count, n}, n}};
      d.launch(*kernel, t, nullptr);
    });
}

// A prompt in one step, against steps of a few tokens beside other sequences that share its blocks.
void check_attention(Device& d) {
  const int kv_heads = 2, group = 4, context = 700, block = 64, blocks = (context + block - 1) / block;
  for (int width : {64, 128, 72})
    for (int window : {0, 100})
      for (const ix_kernel* kernel : {&ix_kernel_attention_f32_ordered_cuda, &ix_kernel_attention_bf16_ordered_cuda}) {
        const bool wide = kernel == &ix_kernel_attention_f32_ordered_cuda;
        const int heads = kv_heads * group, n = heads * width;
        const size_t elements = size_t(2) * kv_heads * block * width;
        Memory<float> cache32(elements * blocks), q(size_t(context) * n), whole(q.count), part(q.count);
        Memory<Bf16> cache16(cache32.count);
        Memory<int> start(8), contexts(8), row(8), table(blocks);
        std::vector<int> order(blocks);
        for (int i = 0; i < blocks; i++) order[i] = blocks - 1 - i;
        cache32.fill(1, 1), cache16.fill(1, 1), q.fill(2, 2), table.put(order), row.bytes(0);
        ix_attr attrs[4];
        attrs[0].i = heads, attrs[1].f = 1 / std::sqrt(double(width)), attrs[2].i = window, attrs[3].f = 0;
        auto run = [&](const std::vector<int>& firsts, const std::vector<int>& counts, float* y) {  // tokens of the prompt, a piece a sequence
          std::vector<int> starts{0}, ends;
          Memory<float> gathered(q.count);
          for (size_t i = 0; i < firsts.size(); i++) {
            CHECK(cudaMemcpy(gathered.data + size_t(starts.back()) * n, q.data + size_t(firsts[i]) * n, size_t(counts[i]) * n * 4, cudaMemcpyDeviceToDevice));
            starts.push_back(starts.back() + counts[i]), ends.push_back(firsts[i] + counts[i]);
          }
          start.put(starts), contexts.put(ends);
          const int tokens = starts.back(), sequences = int(ends.size());
          const ix_tensor t[] = {{gathered.data, 2, {tokens, n}, n}, {wide ? static_cast<void*>(cache32.data) : cache16.data, 4, {blocks, block, kv_heads, width}, int64_t(elements) * (wide ? 4 : 2)},
                                 {start.data, 1, {sequences}, 1}, {contexts.data, 1, {sequences}, 1}, {row.data, 1, {sequences}, 1}, {table.data, 2, {1, blocks}, blocks}, {nullptr, 1, {heads}, 1}, {y, 2, {tokens, n}, n}};
          d.launch(*kernel, t, attrs);
        };
        run({0}, {context}, whole.data);
        const std::vector<float> want = whole.get();
        for (const auto& [firsts, counts] : std::vector<std::pair<std::vector<int>, std::vector<int>>>{{{699}, {1}}, {{0, 130, 640}, {1, 1, 1}}, {{200, 5}, {64, 9}}, {{63, 128, 300, 0}, {2, 300, 40, 33}}, {{1}, {699}}}) {
          run(firsts, counts, part.data);
          const std::vector<float> got = part.get();
          size_t at = 0;
          bool same = true;
          for (size_t i = 0; i < firsts.size(); at += counts[i++]) same &= !std::memcmp(got.data() + at * n, want.data() + size_t(firsts[i]) * n, size_t(counts[i]) * n * 4);
          require(same, wide ? "attention over kv_f32" : "attention over kv_bf16", width, window);
        }
      }
}
}  // namespace

int main() {
  Device d;
  check_norms(d), check_linear(d), check_attention(d);
  std::printf("order: %d checks, %d failed\n", done, failed);
  return failed != 0;
}
