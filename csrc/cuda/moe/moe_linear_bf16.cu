// moe_linear with bf16 arithmetic over row_bf16 weights: places the workspace, sorts what many tokens bring, and
// chooses the product.
#include "cuda/moe/group.cuh"

namespace {
using namespace ix::cuda;

__global__ void __launch_bounds__(1024)
    group_kernel(const __grid_constant__ GroupedProduct g, int chunk_tokens, int warps) {
  extern __shared__ int counts[];
  allow_next_kernel();
  wait_for_earlier_kernels();
  group_pairs(g, chunk_tokens, warps, counts);
}

constexpr int kPart = 512;  // activations that a warp moves at once

__global__ void __launch_bounds__(256) sort_kernel(const __grid_constant__ GroupedProduct g, int parts) {
  allow_next_kernel();
  wait_for_earlier_kernels();
  const int first = blockIdx.x * 8 + threadIdx.x / 32, step = gridDim.x * 8, lane = threadIdx.x % 32,
            pairs = __ldcg(g.totals + 1);
  zero_missing(g, first, step);
  const bool wide = reinterpret_cast<uintptr_t>(g.x) % 16 == 0 && g.x_stride % 4 == 0 && g.k % 4 == 0;
  for (int64_t i = first; i < int64_t(pairs) * parts; i += step) {
    const int place = int(i / parts), begin = int(i % parts) * kPart + lane * 4;
    const int64_t from = g.input(__ldcg(g.order + place));
    Vector<4> v[kPart / 128] = {};
#pragma unroll
    for (int j = 0; j < kPart / 128; j++) {
      const int k = begin + j * 128;
      if (wide) {
        if (k < g.k) v[j] = g.load_input<4>(from + k);
      } else {
        for (int c = 0; c < 4; c++)
          if (k + c < g.k) v[j].v[c] = g.load_input<1>(from + k + c).v[0];
      }
    }
#pragma unroll
    for (int j = 0; j < kPart / 128; j++)
      if (begin + j * 128 < g.w_stride) store(g.sorted + place * g.w_stride + begin + j * 128, v[j]);
  }
}

// The parts of the workspace, one after the other; returns their size.
size_t place(GroupedProduct& g, void* workspace) {
  size_t used = 0;
  auto take = [&](size_t bytes) {
    void* part = static_cast<char*>(workspace) + used;
    used += (bytes + 127) / 128 * 128;
    return part;
  };
  g.totals = static_cast<int*>(take(2 * sizeof(int)));
  g.chunks = static_cast<ExpertPairs*>(take(most_chunks(g, kDirectTokens) * sizeof(ExpertPairs)));
  g.order = static_cast<int*>(take(g.pairs() * sizeof(int)));
  g.sorted = static_cast<__nv_bfloat16*>(take(size_t(g.pairs() * g.w_stride) * sizeof(__nv_bfloat16)));
  return used;
}

// Whether x and y are bf16
template <bool kX, bool kY>
void launch(ix_stream* stream, const ix_kernel_call* call) {
  const GroupedProduct g = grouped_product(call, kX, kY);
  if (g.pairs() <= 0) return;
  const Gpu gpu = current_gpu();
  if (groups_itself(g) && grouped_wgmma(stream, gpu, g, kDirectTokens)) return;
  if (grouped_wgmma(stream, gpu, g, kManyTokens)) return;
  grouped_mma(stream, gpu, g, g.pairs() < int64_t(32) * g.num_experts ? 16 : 128);
}

template <bool kX, bool kY>
size_t workspace(const ix_kernel_call* call, int) {
  GroupedProduct g = grouped_product(call, kX, kY);
  return place(g, nullptr);
}
}  // namespace

namespace ix::cuda {

GroupedProduct grouped_product(const ix_kernel_call* call, bool x_bf16, bool y_bf16) {
  const ix_tensor &x = call->operands[0], &experts = call->operands[1], &w = call->operands[2], &y = call->operands[3];
  const RowWeights<__nv_bfloat16> weights(w.data, w.dims[1], w.dims[2]);
  GroupedProduct g{.x = x.data,
                   .y = y.data,
                   .x_stride = x.stride,
                   .y_stride = y.stride,
                   .experts = Ints(experts),
                   .tokens = x.dims[0],
                   .slots = experts.dims[1],
                   .num_experts = w.dims[0],
                   .n = w.dims[1],
                   .k = w.dims[2],
                   .x_bf16 = x_bf16,
                   .y_bf16 = y_bf16,
                   .per_slot = x.dims[1] != w.dims[2],
                   .w = weights.data,
                   .w_stride = weights.stride,
                   .expert_rows = weights.rows_per_stack};
  place(g, call->workspace);
  return g;
}

void sort_pairs(ix_stream* stream, const Gpu& gpu, const GroupedProduct& g, int chunk_tokens) {
  const int most_warps = 40 * 1024 / g.num_experts - 1, warps = most_warps > 32 ? 32 : most_warps < 1 ? 1 : most_warps;
  launch_kernel<group_kernel>(stream, gpu, 1, 1024, size_t(warps + 1) * g.num_experts * sizeof(int), 1, g, chunk_tokens,
                              warps);
  const int parts = divide_up(g.w_stride, kPart), blocks = divide_up(int64_t(g.pairs()) * parts, 8), most = gpu.sms * 8;
  launch_kernel<sort_kernel>(stream, gpu, blocks < most ? blocks : most, 256, 0, 1, g, parts);
}

}  // namespace ix::cuda

IX_KERNEL(moe_linear_bf16_fast, IX_MOE_LINEAR("f32", "row_bf16", "f32"), "numerics=bf16", (launch<false, false>),
          (workspace<false, false>))
IX_KERNEL(moe_linear_bf16_y, IX_MOE_LINEAR("f32", "row_bf16", "bf16"), "numerics=bf16", (launch<false, true>),
          (workspace<false, true>))
IX_KERNEL(moe_linear_bf16_x, IX_MOE_LINEAR("bf16", "row_bf16", "f32"), "numerics=bf16", (launch<true, false>),
          (workspace<true, false>))
IX_KERNEL(moe_linear_bf16_xy, IX_MOE_LINEAR("bf16", "row_bf16", "bf16"), "numerics=bf16", (launch<true, true>),
          (workspace<true, true>))
