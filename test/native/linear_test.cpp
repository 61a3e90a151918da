// Every packed layout and linear, moe_linear and embed kernel of one instruction set (INFERX_ISA): exact packing
// against golden blocks, products against double arithmetic, and the same bits for a row alone and in any batch.
// Arguments: the folder test/fixtures/blocks; "small" for fewer and smaller batches (emulated processors are slow).
#include <algorithm>
#include <atomic>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cpu/kernel.h"

static int failures = 0, checks = 0;
#define CHECK(condition, ...)                                     \
  do {                                                            \
    checks++;                                                     \
    if (!(condition) && ++failures <= 20) {                       \
      std::printf("%s:%d: %s: ", __FILE__, __LINE__, #condition); \
      std::printf(__VA_ARGS__);                                   \
      std::printf("\n");                                          \
    }                                                             \
  } while (0)

#define FOR_BLOCK_FORMATS(X) X(q8_0) X(q4_0) X(q4_1) X(q5_0) X(q5_1) X(q4_k) X(q5_k) X(q6_k)
#define KERNEL(name) IX_CONCAT(ix_kernel_, name, INFERX_ISA)
#define LAYOUT(name) IX_CONCAT(ix_layout_, name, INFERX_ISA)
#define DECLARE_FLOAT(x)                  \
  extern const ix_layout LAYOUT(p32_##x); \
  extern const ix_kernel KERNEL(linear_##x), KERNEL(moe_linear_##x), KERNEL(embed_##x);
#define DECLARE_BOTH(x) DECLARE_FLOAT(x) extern const ix_kernel KERNEL(linear_##x##_f32), KERNEL(moe_linear_##x##_f32);
DECLARE_FLOAT(f32)
DECLARE_FLOAT(f16)
DECLARE_BOTH(bf16)
FOR_BLOCK_FORMATS(DECLARE_BOTH)

// ---- the formats, element by element, as their public description has them ----
static float f16(const uint8_t* p) {
  const int h = p[0] | p[1] << 8, exponent = h >> 10 & 31, mantissa = h & 1023;
  const double magnitude = exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24);
  return float(h & 0x8000 ? -magnitude : magnitude);
}
static int scale_k(const uint8_t* p, int s) { return s < 4 ? p[s] & 63 : (p[s + 4] & 15) + (p[s - 4] >> 6) * 16; }
static int minimum_k(const uint8_t* p, int s) { return s < 4 ? p[s + 4] & 63 : (p[s + 4] >> 4) + (p[s] >> 6) * 16; }
static int nibble(const uint8_t* p, int i) { return i < 16 ? p[i] & 15 : p[i - 16] >> 4; }
static int bit(const uint8_t* p, int i) { return p[i / 8] >> i % 8 & 1; }

struct Source {
  const char* dtype;
  int block, bytes;
  std::vector<int> f16_at;  // where f16 fields stand, for random blocks
  float (*weight)(const uint8_t* b, int i);
};
static const Source kSources[] = {
    {"f32",
     1,
     4,
     {},
     [](const uint8_t* b, int) {
       float f;
       std::memcpy(&f, b, 4);
       return f;
     }},
    {"f16", 1, 2, {0}, [](const uint8_t* b, int) { return f16(b); }},
    {"bf16",
     1,
     2,
     {},
     [](const uint8_t* b, int) {
       const uint32_t u = uint32_t(b[1]) << 24 | uint32_t(b[0]) << 16;
       float f;
       std::memcpy(&f, &u, 4);
       return f;
     }},
    {"q8_0", 32, 34, {0}, [](const uint8_t* b, int i) { return f16(b) * float(int8_t(b[2 + i])); }},
    {"q4_0", 32, 18, {0}, [](const uint8_t* b, int i) { return f16(b) * float(nibble(b + 2, i) - 8); }},
    {"q4_1", 32, 20, {0, 2}, [](const uint8_t* b, int i) { return f16(b) * float(nibble(b + 4, i)) + f16(b + 2); }},
    {"q5_0",
     32,
     22,
     {0},
     [](const uint8_t* b, int i) { return f16(b) * float(nibble(b + 6, i) + 16 * bit(b + 2, i) - 16); }},
    {"q5_1",
     32,
     24,
     {0, 2},
     [](const uint8_t* b, int i) { return f16(b) * float(nibble(b + 8, i) + 16 * bit(b + 4, i)) + f16(b + 2); }},
    {"q4_k",
     256,
     144,
     {0, 2},
     [](const uint8_t* b, int i) {
       const int s = i / 32, q = b[16 + i / 64 * 32 + i % 32] >> (s % 2 * 4) & 15;
       return f16(b) * float(scale_k(b + 4, s)) * float(q) - f16(b + 2) * float(minimum_k(b + 4, s));
     }},
    {"q5_k",
     256,
     176,
     {0, 2},
     [](const uint8_t* b, int i) {
       const int s = i / 32, q = (b[48 + i / 64 * 32 + i % 32] >> (s % 2 * 4) & 15) + (b[16 + i % 32] >> s & 1) * 16;
       return f16(b) * float(scale_k(b + 4, s)) * float(q) - f16(b + 2) * float(minimum_k(b + 4, s));
     }},
    {"q6_k",
     256,
     210,
     {208},
     [](const uint8_t* b, int i) {
       const int half = i / 128, j = i % 128, low = b[half * 64 + j % 64] >> (j / 64 * 4) & 15;
       const int high = b[128 + half * 32 + j % 32] >> (j / 32 * 2) & 3;
       return f16(b + 208) * float(int8_t(b[192 + i / 16])) * float(low + high * 16 - 32);
     }},
};

struct Case {
  const ix_layout* layout;
  const ix_kernel *linear, *moe, *embed;
};
#define FIRST_CASE(x) {&LAYOUT(p32_##x), &KERNEL(linear_##x), &KERNEL(moe_linear_##x), &KERNEL(embed_##x)},
#define BOTH_CASES(x) \
  FIRST_CASE(x){&LAYOUT(p32_##x), &KERNEL(linear_##x##_f32), &KERNEL(moe_linear_##x##_f32), &KERNEL(embed_##x)},
static const Case kCases[] = {FIRST_CASE(f32) FIRST_CASE(f16) BOTH_CASES(bf16) FOR_BLOCK_FORMATS(BOTH_CASES)};

static const Source& source_of(const ix_layout& layout) {
  for (const Source& s : kSources)
    if (!std::strcmp(s.dtype, layout.source)) return s;
  std::printf("no source %s\n", layout.source);
  std::exit(1);
}

// ---- a stream of plain threads ----
struct Threads : ix_stream {
  explicit Threads(int n) {
    num_threads = n;
    run = [](ix_stream* s, int chunks, void (*fn)(void*, int, int), void* ctx) {
      std::atomic<int> next{0};
      std::vector<std::thread> threads;
      for (int t = 0; t < s->num_threads; t++) {
        threads.emplace_back([&, t] {
          for (int c; (c = next++) < chunks;) fn(ctx, c, t);
        });
      }
      for (auto& t : threads) t.join();
    };
  }
};

static std::mt19937 rng(7);
static float gauss() { return std::normal_distribution<float>()(rng); }

struct Aligned {
  explicit Aligned(size_t n)
      : size(n), data(static_cast<uint8_t*>(std::aligned_alloc(64, (n + 127) / 64 * 64)), std::free) {
    std::memset(data.get(), 0xa5, (n + 127) / 64 * 64);
  }
  size_t size;
  std::unique_ptr<uint8_t, void (*)(void*)> data;
  bool intact() const {
    for (size_t i = size; i < (size + 127) / 64 * 64; i++)
      if (data.get()[i] != 0xa5) return false;
    return true;
  }
};

struct Weight {
  int n, k;
  std::vector<float> plain;  // [n][k]
  std::vector<uint8_t> rows;
  Aligned packed{0};
};
static void pack(const ix_layout& layout, const uint8_t* rows, size_t row_bytes, int n, int k, uint8_t* out) {
  for (int r = 0; r < n; r += layout.panel_rows, out += layout.panel_bytes(k)) {
    std::vector<const void*> starts;
    for (int i = r; i < std::min(n, r + layout.panel_rows); i++) starts.push_back(rows + i * row_bytes);
    layout.pack(out, starts.data(), int(starts.size()), k);
  }
}
static size_t packed_bytes(const ix_layout& l, int n, int k) {
  return size_t((n + l.panel_rows - 1) / l.panel_rows) * l.panel_bytes(k);
}

// `experts` matrices [n, k] of random valid blocks one after the other; a `byte` >= 0 stands everywhere but in scales.
static Weight random_weight(const ix_layout& layout, int n, int k, int experts = 1, int byte = -1) {
  const Source& s = source_of(layout);
  Weight w{n * experts, k, {}, {}};
  const size_t row_bytes = size_t(k) / s.block * s.bytes;
  w.rows.resize(w.n * row_bytes);
  w.plain.resize(size_t(w.n) * k);
  for (auto& b : w.rows) b = uint8_t(byte < 0 ? rng() : byte);
  for (size_t b = 0; b < w.rows.size() / s.bytes; b++) {
    uint8_t* block = &w.rows[b * s.bytes];
    for (int at : s.f16_at) {  // either sign, 2^-11 ... 2^-6, now and then zero or subnormal
      const uint32_t h = (rng() & 0x83ff) | (rng() % 50 ? (4 + rng() % 6) << 10 : 0);
      block[at] = uint8_t(h), block[at + 1] = uint8_t(h >> 8);
    }
    const float f = gauss() * 0.1f;
    if (!std::strcmp(s.dtype, "f32")) std::memcpy(block, &f, 4);
    if (!std::strcmp(s.dtype, "bf16")) std::memcpy(block, reinterpret_cast<const uint8_t*>(&f) + 2, 2);
  }
  for (int r = 0; r < w.n; r++)
    for (int i = 0; i < k; i++)
      w.plain[size_t(r) * k + i] = s.weight(&w.rows[r * row_bytes + i / s.block * s.bytes], i % s.block);
  w.packed = Aligned(experts * packed_bytes(layout, n, k));
  for (int e = 0; e < experts; e++)
    pack(layout, &w.rows[e * n * row_bytes], row_bytes, n, k, w.packed.data.get() + e * packed_bytes(layout, n, k));
  CHECK(w.packed.intact(), "%s writes past its panels", layout.name);
  return w;
}

// Rows in a wider parent, whose other columns must stay as they are and count for nothing.
static const float kGuard = NAN;
struct Rows {
  Rows(int rows, int cols)
      : rows(rows), cols(cols), stride((cols + 31) / 32 * 32 + 32), v(size_t(rows) * stride, kGuard) {}
  int rows, cols, stride;
  std::vector<float> v;
  float* row(int i) { return &v[size_t(i) * stride]; }
  ix_tensor tensor() { return {v.data(), 2, {rows, cols}, stride}; }
  void fill() {
    for (int r = 0; r < rows; r++)
      for (int c = 0; c < cols; c++) row(r)[c] = gauss() * (c % 64 == 5 ? 10.0f : 1.0f);
  }
  bool untouched() {
    for (int r = 0; r < rows; r++)
      for (int c = cols; c < stride; c++)
        if (std::memcmp(&row(r)[c], &kGuard, 4)) return false;
    return true;
  }
};

static void launch(const ix_kernel& kernel, ix_stream& stream, const std::vector<ix_tensor>& operands,
                   const std::vector<ix_attr>& attrs = {}) {
  ix_kernel_call call{operands.data(), attrs.data(), nullptr};
  Aligned workspace(kernel.workspace ? kernel.workspace(&call, stream.num_threads) : 0);
  call.workspace = workspace.data.get();
  kernel.launch(&stream, &call);
  CHECK(workspace.intact(), "%s writes past its workspace", kernel.signature);
}
static ix_tensor matrix(const Weight& w) { return {w.packed.data.get(), 2, {w.n, w.k}, 0}; }
// A fixture holds two rows of 256 weights in blocks, then their values in f32 by an independent implementation.
static void test_golden(const Case& c, const std::string& folder) {
  const Source& s = source_of(*c.layout);
  std::ifstream in(folder + "/" + s.dtype + ".bin", std::ios::binary);
  if (!in) {
    CHECK(!std::strcmp(s.dtype, "f32") || !std::strcmp(s.dtype, "f16"), "no golden blocks of %s in %s", s.dtype,
          folder.c_str());
    return;
  }
  const std::vector<uint8_t> file{std::istreambuf_iterator<char>(in), {}};
  const int k = 256;
  const size_t row_bytes = size_t(k / s.block) * s.bytes;
  CHECK(file.size() == 2 * row_bytes + 2 * k * 4, "%s.bin has %zu bytes", s.dtype, file.size());
  Aligned packed(c.layout->panel_bytes(k));
  pack(*c.layout, file.data(), row_bytes, 2, k, packed.data.get());
  int32_t ids[3] = {1, 0, 1};
  Rows y(3, k);
  Threads stream(1);
  launch(*c.embed, stream, {{ids, 1, {3}, 1}, {packed.data.get(), 2, {2, k}, 0}, y.tensor()});
  for (int t = 0; t < 3; t++) {
    CHECK(!std::memcmp(y.row(t), file.data() + 2 * row_bytes + ids[t] * k * 4, k * 4),
          "%s: row %d is not the reference's", c.layout->name, ids[t]);
  }
}

static void test_embed(const Case& c, int n, int k) {
  const Weight w = random_weight(*c.layout, n, k);
  std::vector<int32_t> ids;
  for (int i = 0; i < n; i++) ids.push_back(n - 1 - i);
  for (int bad : {-1, n, INT_MAX, INT_MIN}) ids.push_back(bad);
  const int rows = int(ids.size());
  Rows y(rows, k);
  Threads stream(3);
  launch(*c.embed, stream, {{ids.data(), 1, {rows}, 1}, matrix(w), y.tensor()});
  int wrong = 0;
  for (int t = 0; t < n; t++) wrong += std::memcmp(y.row(t), &w.plain[size_t(ids[t]) * k], k * 4) != 0;
  CHECK(wrong == 0, "%s [%d, %d]: %d rows differ", c.layout->name, n, k, wrong);
  for (int t = n; t < rows; t++)
    for (int i = 0; i < k; i++) CHECK(y.row(t)[i] == 0, "id %d must give zeros", ids[t]);
  CHECK(y.untouched(), "%s: columns beyond D changed", c.layout->name);
}

static void test_linear(const Case& c, int n, int k, const std::vector<int>& batches) {
  const Weight w = random_weight(*c.layout, n, k);
  const int most = *std::max_element(batches.begin(), batches.end());
  Rows x(most, k), alone(most, n);
  x.fill();
  std::vector<float> bias(n);
  for (auto& b : bias) b = gauss();
  Threads one(1), three(3);
  const bool int8 = std::strstr(c.linear->tags, "int8"), bf16 = std::strstr(c.linear->tags, "bf16");
  const auto by_size = [](float a, float b) { return std::abs(a) < std::abs(b); };
  for (bool with_bias : {false, true}) {
    const ix_tensor b{with_bias ? bias.data() : nullptr, 1, {n}, 1};
    for (int t = 0; t < most; t++) {
      launch(*c.linear, one, {{x.row(t), 2, {1, k}, x.stride}, matrix(w), b, {alone.row(t), 2, {1, n}, alone.stride}});
    }
    CHECK(alone.untouched(), "%s [%d, %d]: columns beyond N changed", c.layout->name, n, k);
    if (most <= 129) {
      for (int t = 0; t < most; t += 1 + most / 16) {
        double error = 0, norm = 0, step = 0;
        for (int r = 0; r < n; r++) {
          const float* wr = &w.plain[size_t(r) * k];
          double want = with_bias ? bias[r] : 0, most_terms = std::abs(want), slack = 0;
          norm += want * want;
          for (int i = 0; i < k; i++) {
            const double term = double(wr[i]) * x.row(t)[i];
            want += term;
            norm += term * term;  // so norm is the expected want^2 of random signs: no luck with cancellation
            most_terms += std::abs(term);
            if (int8 && i % 32 == 0) step = *std::max_element(x.row(t) + i, x.row(t) + i + 32, by_size);
            if (int8) slack += std::abs(wr[i] * step / 254);  // half a step of the block's activations
          }
          const double e = std::abs(want - alone.row(t)[r]);
          CHECK(e <= 1.001 * slack + (bf16 ? 1.0 / 256 : 1e-5) * most_terms, "%s %s [%d, %d]: error %.2e",
                c.layout->name, c.linear->tags, n, k, e);
          error += e * e;
        }
        if (k < 500 && (int8 || bf16)) continue;  // too few terms to average
        const double limit = int8 ? 2e-2 : bf16 ? 5e-3 : 1e-5;
        CHECK(std::sqrt(error / norm) < limit, "%s %s [%d, %d]: relative error %.2e", c.layout->name, c.linear->tags, n,
              k, std::sqrt(error / norm));
      }
    }
    for (int tokens : batches) {
      Rows y(tokens, n);
      ix_tensor in = x.tensor();
      in.dims[0] = tokens;
      launch(*c.linear, tokens % 2 ? three : one, {in, matrix(w), b, y.tensor()});
      int wrong = 0;
      for (int t = 0; t < tokens; t++) wrong += std::memcmp(y.row(t), alone.row(t), size_t(n) * 4) != 0;
      CHECK(wrong == 0, "%s %s [%d, %d]: %d of %d rows are not the bits of the row alone", c.layout->name,
            c.linear->tags, n, k, wrong, tokens);
      CHECK(y.untouched(), "%s [%d, %d]: columns beyond N changed", c.layout->name, n, k);
    }
  }
}

static void test_moe(const Case& c, int n, int k, int num_experts, int slots, int tokens, bool per_slot) {
  const Weight w = random_weight(*c.layout, n, k, num_experts);
  Rows x(tokens, per_slot ? slots * k : k), y(tokens, slots * n), want(1, n);
  x.fill();
  std::vector<int32_t> experts(size_t(tokens) * slots);
  for (auto& e : experts) e = int(rng() % (num_experts + 1)) - 1;  // -1: none
  experts[0] = num_experts - 1;
  if (tokens > 1) experts[1] = num_experts;  // not an expert either
  Threads one(1), three(3);
  launch(*c.moe, three,
         {x.tensor(),
          {experts.data(), 2, {tokens, slots}, slots},
          {w.packed.data.get(), 3, {num_experts, n, k}, 0},
          y.tensor()},
         {ix_attr{.i = per_slot}});
  const size_t expert_bytes = packed_bytes(*c.layout, n, k);
  int wrong = 0;
  for (int t = 0; t < tokens; t++) {
    for (int j = 0; j < slots; j++) {
      const int e = experts[t * slots + j];
      std::fill_n(want.row(0), n, 0.0f);
      if (e >= 0 && e < num_experts) {
        launch(*c.linear, one,
               {{x.row(t) + (per_slot ? j * k : 0), 2, {1, k}, x.stride},
                {w.packed.data.get() + e * expert_bytes, 2, {n, k}, 0},
                {},
                want.tensor()});
      }
      wrong += std::memcmp(y.row(t) + j * n, want.row(0), size_t(n) * 4) != 0;
    }
  }
  CHECK(wrong == 0, "%s %s: %d of %d pairs are not the bits of linear", c.layout->name, c.moe->tags, wrong,
        tokens * slots);
  CHECK(y.untouched(), "%s: columns beyond M changed", c.layout->name);
}

// Bad activations must show: a NaN or an infinity in a row makes this row's outputs such, and no other row's.
static void test_bad_values(const Case& c) {
  const int n = 40, k = 256;
  const Weight w = random_weight(*c.layout, n, k);
  for (float bad : {NAN, INFINITY}) {
    Rows x(3, k), y(3, n);
    x.fill();
    x.row(1)[77] = bad;
    Threads one(1);
    launch(*c.linear, one, {x.tensor(), matrix(w), {}, y.tensor()});
    for (int r = 0; r < n; r++) {
      CHECK(std::isfinite(y.row(0)[r]) && std::isfinite(y.row(2)[r]), "%s %s: a neighbour's row is not finite",
            c.layout->name, c.linear->tags);
      CHECK(!std::isfinite(y.row(1)[r]), "%s %s: a bad value is lost", c.layout->name, c.linear->tags);
    }
  }
}

// The largest values of weights and activations at once: integer sums must not overflow on their way.
static void test_extremes(const Case& c) {
  const int n = 33, k = 256, tokens = 13;
  Threads one(1);
  for (int byte : {0x00, 0x7f, 0x80, 0xff}) {
    const Weight w = random_weight(*c.layout, n, k, 1, byte);
    for (float sign : {1.0f, -1.0f}) {
      Rows x(tokens, k), y(tokens, n);
      for (int t = 0; t < tokens; t++) std::fill_n(x.row(t), k, sign);
      launch(*c.linear, one, {x.tensor(), matrix(w), {}, y.tensor()});
      for (int r = 0; r < n; r++) {
        double want = 0, most = 0;
        for (int i = 0; i < k; i++) want += double(w.plain[r * k + i]) * sign, most += std::abs(w.plain[r * k + i]);
        const double e = std::abs(want - y.row(tokens - 1)[r]);
        CHECK(e <= 1e-5 * most, "%s %s, bytes %02x: error %.2e", c.layout->name, c.linear->tags, byte, e);
      }
    }
  }
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

int main(int argc, char** argv) {
  const std::string isa = TEXT(INFERX_ISA), folder = argc > 1 ? argv[1] : "test/fixtures/blocks";
#if defined(__x86_64__)
  if ((isa == "avx2" && !__builtin_cpu_supports("avx2")) ||
      (isa == "avx512" && !(__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16")))) {
    std::printf("linear_test %s: skipped, this CPU does not run it\n", isa.c_str());
    return 0;
  }
#endif
  const bool small = argc > 2 && std::string(argv[2]) == "small";
  std::vector<int> batches{0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 23, 24, 25, 37, 64, 129};
  if (small) batches.resize(batches.size() - 3);
  for (const Case& c : kCases) {
    const Source& s = source_of(*c.layout);
    const int b = s.block;
    const double ratio = double(c.layout->panel_bytes(4096)) / (32.0 * 4096 / b * s.bytes);
    CHECK(ratio <= 1.06, "%s takes %.3f of the file's bytes", c.layout->name, ratio);
    test_golden(c, folder);
    test_embed(c, 70, b == 1 ? 37 : 2 * b);
    test_linear(c, 70, b == 1 ? 509 : b == 32 ? 1056 : 1280, batches);
    test_linear(c, 509, b == 1 ? 96 : b, {1, 5, 13});
    test_linear(c, 1, b == 1 ? 24 : b, {1, 2, 9});
    test_linear(c, 33, b == 1 ? 1 : b, {1, 4, 30});
    if (!small) test_linear(c, 64, b == 1 ? 700 : 768, {620});  // several blocks of tiles
    test_moe(c, 70, b == 1 ? 61 : 2 * b, 5, 3, 1, false);
    test_moe(c, 33, b == 1 ? 61 : 2 * b, 5, 3, 40, true);
    test_moe(c, 64, b == 1 ? 61 : 2 * b, 3, 2, 90, false);
    test_bad_values(c);
    if (b > 1) test_extremes(c);
    std::printf("%-9s %-13s %.4f bytes a weight, %.4f of the file's\n", c.layout->name, c.linear->tags,
                c.layout->panel_bytes(4096) / (32.0 * 4096), ratio);
  }
  std::printf("linear_test %s: %d checks, %d failed\n", isa.c_str(), checks, failures);
  return failures != 0;
}
