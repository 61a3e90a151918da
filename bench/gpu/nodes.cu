// The small kernels between products and attention on the GPU: results against float64 on the host, for f32 and bf16 operands, then
// microseconds a node in a captured graph (each node reads what the one before wrote, or has its turn after it) and the bytes a second.
// Arguments: "small" checks small shapes only (for compute-sanitizer).
#include <cmath>
#include <cstring>
#include <memory>
#include <string>

#include "cuda/kv/cache.h"
#include "measure.cuh"

#define IX_NODES(X) \
  X(rms_norm) X(rms_norm_to_bf16) X(rms_norm_bf16) X(layer_norm) X(layer_norm_to_bf16) X(add_rms_norm) X(add_rms_norm_to_bf16) \
  X(add_rms_norm_bf16) X(gated_act) X(gated_act_to_bf16) X(gated_act_bf16) X(act_mul) \
  X(act_mul_to_bf16) X(act) X(act_bf16) X(add) X(add_bf16) X(mul) X(scale) X(gather) X(gather_bf16) X(qk_norm_rope_kv_write_f32) \
  X(qk_norm_rope_kv_write_bf16) X(qk_norm_rope_kv_write_x) X(qk_norm_rope_kv_write_y) X(qk_norm_rope_kv_write_xy) X(softmax)
#define IX_EXTERN(name) extern const ix_kernel ix_kernel_##name##_cuda;
IX_NODES(IX_EXTERN)

namespace {
using Bf16 = __nv_bfloat16;
using Numbers = std::vector<double>;
constexpr int kCopies = 3;  // of each table: what one node reads, the one before has not just written

// Rows of f32 or bf16, 32 elements of padding apart, NaN where nothing was written.
struct Table {
  int rows, columns, stride;
  bool narrow;
  Memory<char> memory;
  Table(int rows, int columns, bool narrow) : rows(rows), columns(columns), stride((columns + 31) / 32 * 32), narrow(narrow), memory(size_t(rows) * stride * (narrow ? 2 : 4)) {
    memory.bytes(0xff);
  }
  ix_tensor tensor() const { return {memory.data, 2, {rows, columns}, stride}; }
  void fill(uint32_t seed) {
    const size_t count = size_t(rows) * stride;
    if (narrow)
      fill_kernel<<<2048, 256>>>(reinterpret_cast<Bf16*>(memory.data), count, 2.0f, seed);
    else
      fill_kernel<<<2048, 256>>>(reinterpret_cast<float*>(memory.data), count, 2.0f, seed);
    CHECK(cudaDeviceSynchronize());
  }
  Numbers get() const {
    const std::vector<char> raw = memory.get();
    Numbers out;
    for (int r = 0; r < rows; r++)
      for (int c = 0; c < columns; c++) {
        const size_t i = size_t(r) * stride + c;
        out.push_back(narrow ? double(__bfloat162float(reinterpret_cast<const Bf16*>(raw.data())[i])) : double(reinterpret_cast<const float*>(raw.data())[i]));
      }
    return out;
  }
};

// Type letters of a kernel's text: "rms_norm(x: f32[T,D]" ... where a name stands, whether it is bf16.
bool is_narrow(const ix_kernel& kernel, const char* part) {
  const char* at = std::strstr(kernel.signature, part);
  return at && !std::strncmp(at + std::strlen(part), "bf16", 4);
}

struct Vector {
  Memory<float> memory;
  Vector(int count, uint32_t seed) : memory(count) { memory.fill(1, seed); }
  ix_tensor tensor() const { return {memory.data, 1, {int(memory.count)}, 1}; }
};

int bad = 0, done = 0;
void compare(const char* name, const Table& got, const Numbers& want, const std::string& what) {
  const Numbers values = got.get();
  double error = 0, largest = 1e-30;
  for (size_t i = 0; i < want.size(); i++) {
    const double d = std::fabs(values[i] - want[i]);
    error = d <= error ? error : d;  // NaN stays
    largest = std::max(largest, std::fabs(want[i]));
  }
  done++;
  if (error <= largest * (got.narrow ? 5e-3 : 1e-5)) return;
  bad++;
  std::printf("FAILED %s %s: error %.2e of %.2e\n", name, what.c_str(), error, largest);
}

ix_attr whole(int64_t i) { return {.i = i}; }
ix_attr real(double f) { return {.f = f}; }

void launch(ix_stream& stream, const ix_kernel& kernel, std::vector<ix_tensor> tensors, std::vector<ix_attr> attrs) {
  const ix_kernel_call call{tensors.data(), attrs.data(), nullptr};
  kernel.launch(&stream, &call);
}

double silu(double x) { return x / (1 + std::exp(-x)); }
Numbers normed(const Numbers& x, int columns, int groups, const Numbers& w, const Numbers* b, bool centered) {
  Numbers y(x.size());
  const size_t width = columns / groups;
  for (size_t i = 0; i < x.size(); i += width) {
    double mean = 0, squares = 0;
    for (size_t c = 0; c < width; c++) mean += centered ? x[i + c] / width : 0;
    for (size_t c = 0; c < width; c++) squares += (x[i + c] - mean) * (x[i + c] - mean) / width;
    for (size_t c = 0; c < width; c++) y[i + c] = (x[i + c] - mean) / std::sqrt(squares + 1e-5) * w[c] + (b ? (*b)[c] : 0);
  }
  return y;
}
Numbers host(const Vector& v) {
  const std::vector<float> f = v.memory.get();
  return Numbers(f.begin(), f.end());
}

void check_rows(ix_stream& stream, int rows, int columns) {
  const std::string what = std::to_string(rows) + " x " + std::to_string(columns);
  const auto wait = [&] { CHECK(cudaStreamSynchronize(stream.handle)); };
  for (const ix_kernel* k : {&ix_kernel_rms_norm_cuda, &ix_kernel_rms_norm_to_bf16_cuda, &ix_kernel_rms_norm_bf16_cuda, &ix_kernel_layer_norm_cuda, &ix_kernel_layer_norm_to_bf16_cuda})
    for (const int groups : {1, columns % 4 == 0 ? 4 : 1}) {
      Table x(rows, columns, is_narrow(*k, "x: ")), y(rows, columns, is_narrow(*k, "-> "));
      const Vector w(columns / groups, 3), b(columns / groups, 4);
      x.fill(5);
      const bool layer = k->signature[0] == 'l';
      std::vector<ix_tensor> t{x.tensor(), w.tensor(), y.tensor()};
      if (layer) t.insert(t.begin() + 2, b.tensor());
      launch(stream, *k, t, {whole(groups), real(1e-5)});
      wait();
      const Numbers bias = host(b);
      compare(k->signature, y, normed(x.get(), columns, groups, host(w), layer ? &bias : nullptr, layer), what);
    }
  for (const ix_kernel* k : {&ix_kernel_add_rms_norm_cuda, &ix_kernel_add_rms_norm_to_bf16_cuda, &ix_kernel_add_rms_norm_bf16_cuda}) {
    Table a(rows, columns, false), b(rows, columns, is_narrow(*k, "b: ")), sum(rows, columns, false), y(rows, columns, is_narrow(*k, "-> f32[T,D], "));
    const Vector w(columns, 3);
    a.fill(5), b.fill(6);
    launch(stream, *k, {a.tensor(), b.tensor(), w.tensor(), sum.tensor(), y.tensor()}, {real(1e-5)});
    wait();
    Numbers want = a.get();
    const Numbers other = b.get();
    for (size_t i = 0; i < want.size(); i++) want[i] += other[i];
    compare(k->signature, sum, want, what);
    compare(k->signature, y, normed(want, columns, 1, host(w), nullptr, false), what);
  }
  for (const ix_kernel* k : {&ix_kernel_gated_act_cuda, &ix_kernel_gated_act_to_bf16_cuda, &ix_kernel_gated_act_bf16_cuda, &ix_kernel_act_mul_cuda, &ix_kernel_act_mul_to_bf16_cuda}) {
    const bool gated = k->signature[0] == 'g';
    Table x(rows, 2 * columns, is_narrow(*k, "x: ")), y(rows, columns, is_narrow(*k, "-> "));
    x.fill(7);
    const ix_tensor all = x.tensor(), gate{all.data, 2, {rows, columns}, all.stride}, up{static_cast<float*>(all.data) + columns, 2, {rows, columns}, all.stride};
    launch(stream, *k, gated ? std::vector<ix_tensor>{all, y.tensor()} : std::vector<ix_tensor>{gate, up, y.tensor()}, gated ? std::vector<ix_attr>{whole(1), whole(0)} : std::vector<ix_attr>{whole(0)});
    wait();
    const Numbers from = x.get();
    Numbers want;
    for (int r = 0; r < rows; r++)
      for (int c = 0; c < columns; c++) want.push_back(silu(from[size_t(r) * 2 * columns + c]) * from[size_t(r) * 2 * columns + columns + c]);
    compare(k->signature, y, want, what);
  }
  for (const ix_kernel* k : {&ix_kernel_act_cuda, &ix_kernel_act_bf16_cuda, &ix_kernel_scale_cuda, &ix_kernel_add_cuda, &ix_kernel_add_bf16_cuda, &ix_kernel_mul_cuda}) {
    const std::string op(k->signature, std::strchr(k->signature, '('));
    const bool two = op == "add" || op == "mul";
    Table a(rows, columns, is_narrow(*k, "x: ")), b(rows, columns, is_narrow(*k, "b: ")), y(rows, columns, is_narrow(*k, "-> "));
    a.fill(8), b.fill(9);
    launch(stream, *k, two ? std::vector<ix_tensor>{a.tensor(), b.tensor(), y.tensor()} : std::vector<ix_tensor>{a.tensor(), y.tensor()}, {op == "act" ? whole(0) : real(1.5)});
    wait();
    Numbers want = a.get();
    const Numbers other = b.get();
    for (size_t i = 0; i < want.size(); i++) want[i] = op == "act" ? silu(want[i]) : op == "scale" ? 1.5 * want[i] : op == "add" ? want[i] + other[i] : want[i] * other[i];
    compare(k->signature, y, want, what);
  }
  for (const ix_kernel* k : {&ix_kernel_gather_cuda, &ix_kernel_gather_bf16_cuda}) {
    Table x(rows, columns, is_narrow(*k, "x: ")), y(rows, columns, is_narrow(*k, "-> "));
    x.fill(10);
    Memory<int> index(rows);
    std::vector<int> from;
    for (int r = 0; r < rows; r++) from.push_back(r % 3 ? rows - 1 - r : -1);
    index.put(from);
    launch(stream, *k, {x.tensor(), {index.data, 1, {rows}, 1}, y.tensor()}, {});
    wait();
    const Numbers all = x.get();
    Numbers want;
    for (int r = 0; r < rows; r++)
      for (int c = 0; c < columns; c++) want.push_back(from[r] < 0 ? 0 : all[size_t(from[r]) * columns + c]);
    compare(k->signature, y, want, what);
  }
}

struct Heads {
  int heads, kv_heads, width, half;
  bool interleaved, norms;
};

// The fused kernel and a cache of one layer of two, so that blocks lie apart.
struct Rotation {
  static constexpr int kTokens = 64;
  Heads h;
  int tokens, blocks;
  bool narrow_x, narrow_y, narrow_cache;
  Table qkv, table, y;
  Vector qw, kw;
  Memory<int> slots;
  Memory<char> cache;
  std::vector<int> slot;
  Rotation(const ix_kernel& k, const Heads& h, int tokens)
      : h(h), tokens(tokens), blocks(tokens / kTokens + 2), narrow_x(is_narrow(k, "q: ")), narrow_y(is_narrow(k, "-> ")), narrow_cache(is_narrow(k, "cache: kv_")), qkv(tokens, (h.heads + 2 * h.kv_heads) * h.width, narrow_x),
        table(tokens, 2 * h.half, false), y(tokens, h.heads * h.width, narrow_y), qw(h.width, 11), kw(h.width, 12), slots(tokens), cache(2 * block_bytes() * blocks) {
    qkv.fill(13), table.fill(14), cache.bytes(0xff);
    for (int t = 0; t < tokens; t++) slot.push_back(t == 1 ? -1 : t + 5);
    slots.put(slot);
  }
  size_t block_bytes() const { return size_t(2) * h.kv_heads * kTokens * h.width * (narrow_cache ? 2 : 4); }
  void run(ix_stream& stream, const ix_kernel& k) const {
    const ix_tensor all = qkv.tensor();
    const auto part = [&](int first, int heads) { return ix_tensor{static_cast<char*>(all.data) + size_t(first) * h.width * (narrow_x ? 2 : 4), 2, {tokens, heads * h.width}, all.stride}; };
    const ix_tensor none{}, kv{cache.data, 4, {blocks, kTokens, h.kv_heads, h.width}, int64_t(2 * block_bytes())};
    launch(stream, k, {kv, part(0, h.heads), part(h.heads, h.kv_heads), part(h.heads + h.kv_heads, h.kv_heads), table.tensor(), {slots.data, 1, {tokens}, 1}, h.norms ? qw.tensor() : none, h.norms ? kw.tensor() : none, y.tensor()},
           {whole(h.heads), whole(h.interleaved), real(1e-5)});
  }
};

void check_rotation(ix_stream& stream, const ix_kernel& k, const Heads& h, int tokens) {
  Rotation r(k, h, tokens);
  r.run(stream, k);
  CHECK(cudaStreamSynchronize(stream.handle));
  const Numbers x = r.qkv.get(), table = r.table.get(), qw = host(r.qw), kw = host(r.kw);
  const std::vector<char> stored = r.cache.get();
  Numbers want_q;
  double worst = 0;
  for (int t = 0; t < tokens; t++)
    for (int head = 0; head < h.heads + h.kv_heads; head++) {
      const bool query = head < h.heads;
      Numbers in(x.begin() + (size_t(t) * (h.heads + 2 * h.kv_heads) + head) * h.width, x.begin() + (size_t(t) * (h.heads + 2 * h.kv_heads) + head + 1) * h.width);
      if (h.norms) in = normed(in, h.width, 1, query ? qw : kw, nullptr, false);
      Numbers out = in;
      for (int i = 0; i < h.half; i++) {
        const int a = h.interleaved ? 2 * i : i, b = h.interleaved ? 2 * i + 1 : i + h.half;
        const double cosine = table[size_t(t) * 2 * h.half + i], sine = table[size_t(t) * 2 * h.half + h.half + i];
        out[a] = in[a] * cosine - in[b] * sine, out[b] = in[b] * cosine + in[a] * sine;
      }
      if (query) {
        want_q.insert(want_q.end(), out.begin(), out.end());
        continue;
      }
      if (r.slot[t] < 0) continue;
      const size_t each = r.narrow_cache ? 2 : 4, place = (size_t(head - h.heads) * 2 * Rotation::kTokens + r.slot[t] % Rotation::kTokens) * h.width;
      const char* block = stored.data() + size_t(r.slot[t] / Rotation::kTokens) * 2 * r.block_bytes();
      for (int v = 0; v < 2; v++)
        for (int d = 0; d < h.width; d++) {
          const char* at = block + (place + size_t(v) * Rotation::kTokens * h.width + d) * each;
          const double got = r.narrow_cache ? double(__bfloat162float(*reinterpret_cast<const Bf16*>(at))) : double(*reinterpret_cast<const float*>(at));
          const double want = v ? x[(size_t(t) * (h.heads + 2 * h.kv_heads) + head + h.kv_heads) * h.width + d] : out[d];
          const double error = std::fabs(got - want);
          worst = error <= worst ? worst : error;
        }
    }
  const std::string what = std::to_string(tokens) + " tokens, width " + std::to_string(h.width) + ", half " + std::to_string(h.half) + (h.interleaved ? ", pairs" : "");
  compare(k.signature, r.y, want_q, what);
  done++;
  if (!(worst < (r.narrow_cache ? 3e-2 : 1e-5))) bad++, std::printf("FAILED %s %s: cache %.2e\n", k.signature, what.c_str(), worst);
}

const ix_kernel* const kRotations[] = {&ix_kernel_qk_norm_rope_kv_write_f32_cuda, &ix_kernel_qk_norm_rope_kv_write_bf16_cuda, &ix_kernel_qk_norm_rope_kv_write_x_cuda, &ix_kernel_qk_norm_rope_kv_write_y_cuda,
                                       &ix_kernel_qk_norm_rope_kv_write_xy_cuda};

void check_all(ix_stream& stream, bool small) {
  for (const int columns : small ? std::vector<int>{45, 512} : std::vector<int>{1, 45, 512, 4096, 14336, 40004})
    for (const int rows : small ? std::vector<int>{3} : std::vector<int>{1, 3, 300})
      if (rows < 100 || columns <= 4096) check_rows(stream, rows, columns);
  for (const ix_kernel* k : kRotations)
    for (const Heads& h : {Heads{32, 8, 128, 64, false, false}, Heads{4, 2, 128, 64, false, true}, Heads{3, 1, 80, 16, true, true}, Heads{5, 5, 20, 10, false, false}, Heads{2, 1, 256, 128, false, true}, Heads{4, 1, 6, 3, true, true}})
      for (const int tokens : small ? std::vector<int>{2} : std::vector<int>{1, 7, 400}) check_rotation(stream, *k, h, tokens);
  std::printf("nodes: %d checks, %d failed\n", done, bad);
}

void times(ix_stream& stream) {
  const double ceiling = read_ceiling(stream);
  std::printf("reading ceiling %.2f TB/s\n%-34s", ceiling, "us (TB/s)");
  const std::vector<int> tokens = {1, 8, 64, 256, 2048};
  for (int t : tokens) std::printf("  T %-14d", t);
  const auto row = [&](const char* name, auto make) {
    std::printf("\n%-34s", name);
    for (int t : tokens) {
      const auto [bytes, run] = make(t);
      const double us = graph_us(stream, 48, run);
      std::printf("  %6.2f (%5.2f)  ", us, double(bytes) * t / 1e6 / us);
    }
  };
  const auto tables = [](int t, int columns, bool narrow) {
    std::vector<std::shared_ptr<Table>> out;
    for (int i = 0; i < kCopies; i++) out.push_back(std::make_shared<Table>(t, columns, narrow)), out.back()->fill(i);
    return out;
  };
  const auto w = std::make_shared<Vector>(4096, 1);
  row("rms_norm bf16 of f32", [&](int t) {
    return std::pair(4096 * 6, std::function<void(int)>([&stream, w, x = tables(t, 4096, false), y = tables(t, 4096, true)](int i) {
                       launch(stream, ix_kernel_rms_norm_to_bf16_cuda, {x[i % kCopies]->tensor(), w->tensor(), y[i % kCopies]->tensor()}, {whole(1), real(1e-5)});
                     }));
  });
  for (const ix_kernel* k : {&ix_kernel_add_rms_norm_cuda, &ix_kernel_add_rms_norm_bf16_cuda}) {
    const bool narrow = is_narrow(*k, "b: ");
    row(narrow ? "add_rms_norm bf16" : "add_rms_norm f32", [&](int t) {
      return std::pair(4096 * (narrow ? 12 : 16), std::function<void(int)>([&stream, k, w, s = tables(t, 4096, false), b = tables(t, 4096, narrow), y = tables(t, 4096, narrow)](int i) {
                         launch(stream, *k, {s[i % kCopies]->tensor(), b[i % kCopies]->tensor(), w->tensor(), s[(i + 1) % kCopies]->tensor(), y[i % kCopies]->tensor()}, {real(1e-5)});
                       }));
    });
  }
  for (const ix_kernel* k : {&ix_kernel_gated_act_cuda, &ix_kernel_gated_act_bf16_cuda}) {
    const bool narrow = is_narrow(*k, "x: ");
    row(narrow ? "gated_act bf16 of 14336" : "gated_act f32 of 14336", [&](int t) {
      return std::pair(14336 * 3 * (narrow ? 2 : 4), std::function<void(int)>([&stream, k, x = tables(t, 28672, narrow), y = tables(t, 14336, narrow)](int i) {
                         launch(stream, *k, {x[i % kCopies]->tensor(), y[i % kCopies]->tensor()}, {whole(1), whole(0)});
                       }));
    });
  }
  for (const ix_kernel* k : {kRotations[1], kRotations[2], kRotations[4]}) {
    const std::string name = std::string("rotate, write: ") + (is_narrow(*k, "q: ") ? "bf16" : "f32") + (is_narrow(*k, "-> ") ? " -> bf16" : " -> f32");
    row(name.c_str(), [&](int t) {
      std::vector<std::shared_ptr<Rotation>> r;
      for (int i = 0; i < kCopies; i++) r.push_back(std::make_shared<Rotation>(*k, Heads{32, 8, 128, 64, false, false}, t));
      const int bytes = 6144 * (is_narrow(*k, "q: ") ? 2 : 4) + 4096 * (is_narrow(*k, "-> ") ? 2 : 4) + 2048 * 2 + 512;
      return std::pair(bytes, std::function<void(int)>([&stream, k, r](int i) { r[i % kCopies]->run(stream, *k); }));
    });
  }
  row("add f32", [&](int t) {
    return std::pair(4096 * 12, std::function<void(int)>([&stream, x = tables(t, 4096, false), y = tables(t, 4096, false)](int i) {
                       launch(stream, ix_kernel_add_cuda, {x[i % kCopies]->tensor(), y[i % kCopies]->tensor(), x[(i + 1) % kCopies]->tensor()}, {});
                     }));
  });
  row("softmax of 4096", [&](int t) {
    return std::pair(4096 * 8, std::function<void(int)>([&stream, x = tables(t, 4096, false), y = tables(t, 4096, false)](int i) {
                       launch(stream, ix_kernel_softmax_cuda, {x[i % kCopies]->tensor(), y[i % kCopies]->tensor()}, {});
                     }));
  });
  std::printf("\n");
}
}  // namespace

int main(int argc, char** argv) {
  const bool small = argc > 1 && !std::strcmp(argv[1], "small");
  ix_stream stream = new_stream();
  check_all(stream, small);
  if (!small && !bad) times(stream);
  return bad != 0;
}
