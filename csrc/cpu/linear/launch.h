// The launchers of linear, moe_linear and embed for a weight policy, and their signatures (docs/plan.md).
#pragma once
#include "cpu/kernel.h"
#include "cpu/linear/float.h"

#define IX_LINEAR(W) "linear(x: f32[T,K], w: " W "[N,K], bias?: f32[N]) -> f32[T,N]"
#define IX_MOE_LINEAR(W) "moe_linear(x: f32[T,K], experts: i32[T,k], w: " W "[E,N,K], per_slot: i32) -> f32[T,M]"
#define IX_EMBED(W) "embed(ids: i32[T], w: " W "[V,D]) -> f32[T,D]"

namespace ix::cpu {
namespace {

template <class P>
size_t linear_workspace(const ix_kernel_call* call, int threads) {
  return Job<P>::workspace(call->operands[0].dims[0], 1, call->operands[1].dims[1], threads);
}
template <class P>
void linear(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor &x = call->operands[0], &w = call->operands[1], &bias = call->operands[2], &y = call->operands[3];
  const int tokens = x.dims[0];
  Job<P> job(stream, call->workspace, tokens, 1, w.dims[0], w.dims[1], static_cast<const float*>(bias.data));
  for (int t = 0; t < tokens; t++) {
    job.rows[t] = {static_cast<const float*>(x.data) + t * x.stride, static_cast<float*>(y.data) + t * y.stride};
  }
  if (tokens > 0) job.add_group(w.data, tokens);
  job.run();
}

template <class P>
size_t moe_workspace(const ix_kernel_call* call, int threads) {
  const ix_tensor &experts = call->operands[1], &w = call->operands[2];
  const int64_t pairs = int64_t(experts.dims[0]) * experts.dims[1];
  return align64(size_t(w.dims[0] + 1) * sizeof(int32_t)) + Job<P>::workspace(pairs, w.dims[0], w.dims[2], threads);
}
// Pairs (token, slot) are sorted by expert, in order; each expert in use is a group.
template <class P>
void moe_linear(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor &x = call->operands[0], &experts = call->operands[1], &w = call->operands[2], &y = call->operands[3];
  const int tokens = experts.dims[0], slots = experts.dims[1], num_experts = w.dims[0], n = w.dims[1], k = w.dims[2];
  const bool per_slot = call->attrs[0].i != 0;
  int32_t* start = static_cast<int32_t*>(call->workspace);  // of each expert's rows, one ahead while counting
  __builtin_memset(start, 0, size_t(num_experts + 1) * sizeof(int32_t));
  Job<P> job(stream, static_cast<uint8_t*>(call->workspace) + align64(size_t(num_experts + 1) * sizeof(int32_t)),
             int64_t(tokens) * slots, num_experts, n, k, nullptr);
  const auto expert = [&](int t, int j) {
    const int e = static_cast<const int32_t*>(experts.data)[t * experts.stride + j];
    return e >= 0 && e < num_experts ? e : -1;
  };
  for (int t = 0; t < tokens; t++)
    for (int j = 0; j < slots; j++)
      if (const int e = expert(t, j); e >= 0) start[e + 1]++;
  for (int e = 0; e < num_experts; e++) start[e + 1] += start[e];
  for (int t = 0; t < tokens; t++) {
    for (int j = 0; j < slots; j++) {
      float* out = static_cast<float*>(y.data) + t * y.stride + int64_t(j) * n;
      const int e = expert(t, j);
      if (e < 0)
        __builtin_memset(out, 0, size_t(n) * sizeof(float));
      else
        job.rows[start[e]++] = {static_cast<const float*>(x.data) + t * x.stride + (per_slot ? int64_t(j) * k : 0),
                                out};
    }
  }
  // start[e] is now the end of expert e.
  const size_t expert_bytes = size_t(divide_up(n, kPanel)) * P::panel_bytes(k);
  for (int e = 0; e < num_experts; e++) {
    const int count = start[e] - (e ? start[e - 1] : 0);
    if (count > 0) job.add_group(static_cast<const uint8_t*>(w.data) + e * expert_bytes, count);
  }
  job.run();
}

// Rows of a table: get(panel, row in it, columns, out).
template <class Get>
IX_INLINE void embed_rows(ix_stream* stream, const ix_kernel_call* call, size_t panel_bytes, Get&& get) {
  const ix_tensor &ids = call->operands[0], &w = call->operands[1], &y = call->operands[2];
  const int tokens = ids.dims[0], cols = w.dims[1];
  const int step = max(1, 4096 / max(1, cols));
  parallel(stream, int(divide_up(tokens, step)), [&](int chunk, int) {
    for (int t = chunk * step; t < min(tokens, (chunk + 1) * step); t++) {
      const int id = static_cast<const int32_t*>(ids.data)[t];
      float* out = static_cast<float*>(y.data) + t * y.stride;
      if (id < 0 || id >= w.dims[0])
        __builtin_memset(out, 0, size_t(cols) * sizeof(float));
      else
        get(static_cast<const uint8_t*>(w.data) + size_t(id / kPanel) * panel_bytes, id % kPanel, cols, out);
    }
  });
}
template <class S>
void embed_float(ix_stream* stream, const ix_kernel_call* call) {
  embed_rows(stream, call, FloatLinear<S>::panel_bytes(call->operands[1].dims[1]),
             [](const uint8_t* panel, int row, int cols, float* out) {
               for (int k = 0; k < cols; k++) out[k] = S::weight(panel, k, row);
             });
}
template <class F>
void embed_blocks(ix_stream* stream, const ix_kernel_call* call) {
  using U = Unpacked<F>;
  embed_rows(stream, call, block_panel_bytes<F>(call->operands[1].dims[1]),
             [](const uint8_t* panel, int row, int cols, float* out) {
               alignas(64) uint8_t block[U::kBlock];
               for (int b = 0; b < cols / kBlockK; b++) {
                 unpack<F>(head_of<F>(panel, b), block_of<F>(panel, b), block);
                 for (int i = 0; i < kBlockK; i++) {
                   const int q = block[i / 4 * 128 + row * 4 + i % 4] - F::kOffset;
                   float w = float(q) * load<float>(block + U::kScales + (F::kParts == 2 ? i / 16 * 128 : 0) + row * 4);
                   if constexpr (F::kHasMin) w -= load<float>(block + U::kMins + row * 4);
                   out[b * kBlockK + i] = w;
                 }
               }
             });
}

// Packing. F::pack(source block, its place in the panel, row) packs one (super-)block of a row; unused rows stay zero
// bytes, which are weights of zero in each format.
template <class F>
void pack_panel(void* panel, const void* const* rows, int32_t num_rows, int64_t cols) {
  uint8_t* out = static_cast<uint8_t*>(panel);
  __builtin_memset(out, 0, block_panel_bytes<F>(cols));
  for (int64_t s = 0; s < cols / (kBlockK * F::kSuper); s++, out += F::kHead + F::kSuper * F::kBlock)
    for (int r = 0; r < num_rows; r++) F::pack(static_cast<const uint8_t*>(rows[r]) + s * F::kSourceBytes, out, r);
}
template <class S, int kBytes>
void pack_float_panel(void* panel, const void* const* rows, int32_t num_rows, int64_t cols) {
  constexpr int kPiece = S::kUnit * kBytes;  // of a row in a unit
  uint8_t* out = static_cast<uint8_t*>(panel);
  __builtin_memset(out, 0, FloatLinear<S>::panel_bytes(cols));
  for (int64_t k0 = 0; k0 < cols; k0 += 64) {  // a few lines of each row at a time
    for (int r = 0; r < num_rows; r++) {
      const uint8_t* row = static_cast<const uint8_t*>(rows[r]);
      for (int64_t k = k0; k < min<int64_t>(cols, k0 + 64); k += S::kUnit) {
        uint8_t* to = out + k / S::kUnit * S::kUnitBytes + r * kPiece;
        if (k + S::kUnit <= cols)
          __builtin_memcpy(to, row + k * kBytes, kPiece);
        else
          __builtin_memcpy(to, row + k * kBytes, kBytes);  // an odd K
      }
    }
  }
}

}  // namespace
}  // namespace ix::cpu
