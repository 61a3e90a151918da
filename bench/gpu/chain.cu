// Decode steps of an 8B model's shape as one captured graph of the real kernels, GPU time alone: 32 layers and the logits, without embedding
// and sampling. Prints tokens/s by sequences at context 1024 and what the parts of a layer take when the others are left out.
#include <memory>

#include "cuda/kv/cache.h"
#include "measure.cuh"

#define IX_EXTERN(name) extern const ix_kernel ix_kernel_##name##_cuda;
IX_EXTERN(add_rms_norm_bf16) IX_EXTERN(linear_bf16_y) IX_EXTERN(linear_bf16_x) IX_EXTERN(linear_bf16_xy) IX_EXTERN(qk_norm_rope_kv_write_x) IX_EXTERN(gated_act_bf16) IX_EXTERN(attention_bf16)

namespace {
using Bf16 = __nv_bfloat16;
constexpr int kLayers = 32, kHidden = 4096, kHeads = 32, kKvHeads = 8, kWidth = 128, kFfn = 14336, kVocabulary = 128256, kBlockTokens = 64, kContext = 1024;
constexpr int kQkv = (kHeads + 2 * kKvHeads) * kWidth;
constexpr size_t kLayerBytes = size_t(2) * kKvHeads * kWidth * kBlockTokens * 2;

struct Matrix {
  Memory<Bf16> memory;
  int n, k;
  Matrix(int n, int k, uint32_t seed) : memory(size_t((n + 63) / 64 * 64) * k), n(n), k(k) { memory.fill(0.02f, seed); }
  ix_tensor tensor() const { return {memory.data, 2, {n, k}, k}; }
};
struct Layer {
  Matrix qkv, o, gate_up, down;
  explicit Layer(int i) : qkv(kQkv, kHidden, 4 * i), o(kHidden, kHidden, 4 * i + 1), gate_up(2 * kFfn, kHidden, 4 * i + 2), down(kHidden, kFfn, 4 * i + 3) {}
};
enum Part { kNorms = 1, kLinears = 2, kRotation = 4, kAttention = 8, kAct = 16, kAll = 31 };

struct Step {
  ix_stream stream = new_stream();
  int tokens, blocks;
  Memory<float> first, second, q, attended, table, logits, norm;
  Memory<Bf16> normed, qkv, out, wide, acted;
  Memory<char> cache, workspace;
  Memory<int> slots, starts, contexts, rows, block_table;

  explicit Step(int tokens)
      : tokens(tokens), blocks(tokens * kContext / kBlockTokens), first(size_t(tokens) * kHidden), second(first.count), q(first.count), attended(first.count), table(size_t(tokens) * kWidth), logits(size_t(tokens) * kVocabulary), norm(kHidden),
        normed(first.count), qkv(size_t(tokens) * kQkv), out(first.count), wide(size_t(tokens) * 2 * kFfn), acted(size_t(tokens) * kFfn), cache(kLayers * kLayerBytes * blocks), workspace(size_t(256) << 20), slots(tokens), starts(tokens + 1),
        contexts(tokens), rows(tokens), block_table(blocks) {
    first.fill(1, 1), out.fill(1, 2), norm.fill(1, 3), table.fill(1, 4);
    fill_kernel<<<2048, 256>>>(reinterpret_cast<Bf16*>(cache.data), cache.count / 2, 1.0f, 5);
    std::vector<int> slot, start, row, order;
    const int per_row = kContext / kBlockTokens;
    for (int b = 0; b < blocks; b++) order.push_back(b);
    for (int b = blocks - 1; b > 0; b--) std::swap(order[b], order[random_bits(b, 9) % (b + 1)]);
    for (int t = 0; t < tokens; t++) slot.push_back(order[t * per_row + per_row - 1] * kBlockTokens + kBlockTokens - 1), start.push_back(t), row.push_back(t);
    start.push_back(tokens);
    slots.put(slot), starts.put(start), contexts.put(std::vector<int>(tokens, kContext)), rows.put(row), block_table.put(order);
    stream.counters = nullptr;
    CHECK(cudaMalloc(&stream.counters, kStreamCounters * 4));
    CHECK(cudaMemset(stream.counters, 0, kStreamCounters * 4));
    CHECK(cudaDeviceSynchronize());
  }
  ~Step() {
    cudaFree(stream.counters);
    cudaStreamDestroy(stream.handle);
  }
  template <class T>
  ix_tensor rows_of(const Memory<T>& m, int columns, int start = 0, int all = 0) const {
    return {m.data + start, 2, {tokens, columns}, all ? all : columns};
  }
  ix_tensor list(const Memory<int>& m, int count) const { return {m.data, 1, {count}, 1}; }
  void launch(const ix_kernel& kernel, std::vector<ix_tensor> tensors, std::vector<ix_attr> attrs = {}) {
    const ix_kernel_call call{tensors.data(), attrs.data(), workspace.data};
    kernel.launch(&stream, &call);
  }
  void add_norm(bool odd) {  // the stream moves from one table to the other
    launch(ix_kernel_add_rms_norm_bf16_cuda, {rows_of(odd ? second : first, kHidden), rows_of(out, kHidden), {norm.data, 1, {kHidden}, 1}, rows_of(odd ? first : second, kHidden), rows_of(normed, kHidden)}, {{.f = 1e-5}});
  }
  void linear(const ix_kernel& kernel, const ix_tensor& x, const Matrix& w, const ix_tensor& y) { launch(kernel, {x, w.tensor(), {}, y}); }

  void layer(const Layer& w, int i, int parts) {
    const ix_tensor kv{cache.data + i * kLayerBytes, 4, {blocks, kBlockTokens, kKvHeads, kWidth}, int64_t(kLayers * kLayerBytes)};
    const bool linears = parts & kLinears;
    if (parts & kNorms) add_norm(false);
    if (linears) linear(ix_kernel_linear_bf16_xy_cuda, rows_of(normed, kHidden), w.qkv, rows_of(qkv, kQkv));
    if (parts & kRotation)
      launch(ix_kernel_qk_norm_rope_kv_write_x_cuda,
             {kv, rows_of(qkv, kHeads * kWidth, 0, kQkv), rows_of(qkv, kKvHeads * kWidth, kHeads * kWidth, kQkv), rows_of(qkv, kKvHeads * kWidth, (kHeads + kKvHeads) * kWidth, kQkv), rows_of(table, kWidth), list(slots, tokens), {}, {},
              rows_of(q, kHidden)},
             {{.i = kHeads}, {.i = 0}, {.f = 1e-5}});
    if (parts & kAttention)
      launch(ix_kernel_attention_bf16_cuda,
             {rows_of(q, kHidden), kv, list(starts, tokens + 1), list(contexts, tokens), list(rows, tokens), {block_table.data, 2, {tokens, kContext / kBlockTokens}, kContext / kBlockTokens}, {}, rows_of(attended, kHidden)},
             {{.i = kHeads}, {.f = 0.088}, {.i = 0}, {.f = 0}});
    if (linears) linear(ix_kernel_linear_bf16_y_cuda, rows_of(attended, kHidden), w.o, rows_of(out, kHidden));
    if (parts & kNorms) add_norm(true);
    if (linears) linear(ix_kernel_linear_bf16_xy_cuda, rows_of(normed, kHidden), w.gate_up, rows_of(wide, 2 * kFfn));
    if (parts & kAct) launch(ix_kernel_gated_act_bf16_cuda, {rows_of(wide, 2 * kFfn), rows_of(acted, kFfn)}, {{.i = 1}, {.i = 0}});
    if (linears) linear(ix_kernel_linear_bf16_xy_cuda, rows_of(acted, kFfn), w.down, rows_of(out, kHidden));
  }
};
}  // namespace

int main() {
  std::vector<std::unique_ptr<Layer>> layers;
  for (int i = 0; i < kLayers; i++) layers.push_back(std::make_unique<Layer>(i));
  const Matrix head(kVocabulary, kHidden, 1000);
  std::printf("%-10s%-16s%-16s%-12s  without: norms, rotation, attention, act, all but products\n", "sequences", "tokens/s", "us a layer", "logits us");
  for (const int tokens : {1, 8, 32, 64, 256}) {
    Step s(tokens);
    const auto us = [&](int parts) { return graph_us(s.stream, 1, [&](int) { for (int i = 0; i < kLayers; i++) s.layer(*layers[i], i, parts); }); };
    const double all = us(kAll), logits = graph_us(s.stream, 3, [&](int i) { s.add_norm(false), s.linear(ix_kernel_linear_bf16_x_cuda, s.rows_of(s.normed, kHidden), head, s.rows_of(s.logits, kVocabulary)); });
    std::printf("%-10d%-16.0f%-16.1f%-12.1f  ", tokens, 1e6 * tokens / (all + logits), all / kLayers, logits);
    for (const int parts : {kAll & ~kNorms, kAll & ~kRotation, kAll & ~kAttention, kAll & ~kAct, int(kLinears)}) std::printf("%8.1f", us(parts) / kLayers);
    std::printf("\n");
    std::fflush(stdout);
  }
}
