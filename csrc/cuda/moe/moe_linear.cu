// moe_linear over row-major float weights: exact weights, f32 activations and sums, see docs/plan.md. A warp for each
// output of each (token, slot).
#include "cuda/linear/rows.h"
#include "cuda/moe/grouped.h"

namespace {
using namespace ix::cuda;

constexpr int kWarps = 4, kMostPairs = 8192;  // side by side in the grid

template <class T>
__global__ void pair_kernel(Floats x, Ints experts, RowWeights<T> w, Floats y, int pairs, int slots, int num_experts,
                            int n, int k, bool per_slot) {
  const int row_blocks = (n + kWarps - 1) / kWarps, row = blockIdx.x % row_blocks * kWarps + threadIdx.x / 32;
  allow_next_kernel();
  wait_for_earlier_kernels();
  if (row >= n) return;
  for (int pair = blockIdx.x / row_blocks; pair < pairs; pair += gridDim.x / row_blocks) {
    const int token = pair / slots, slot = pair % slots, expert = experts(token, slot);
    float sum = 0;
    if (expert >= 0 && expert < num_experts) {
      const int64_t begin = per_slot ? int64_t(slot) * k : 0;
      const T* weights = w.row(expert * w.rows_per_stack + row);
      constexpr int kVector = 16 / sizeof(T);  // rows of weights are padded with zeros, x ends at k
      for (int i = threadIdx.x % 32 * kVector; i < k; i += 32 * kVector) {
        float values[kVector];
        load_vector(weights + i, values);
#pragma unroll
        for (int j = 0; j < kVector; j++) sum = fmaf(i + j < k ? x(token, begin + i + j) : 0.0f, values[j], sum);
      }
      sum = warp_sum(sum);
    }
    if (threadIdx.x % 32 == 0) y[token][int64_t(slot) * n + row] = sum;
  }
}

template <class T>
void launch(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor &x = call->operands[0], &experts = call->operands[1], &w = call->operands[2];
  const int slots = experts.dims[1], pairs = x.dims[0] * slots, n = w.dims[1], k = w.dims[2];
  if (pairs <= 0) return;
  launch_kernel<pair_kernel<T>>(stream, current_gpu(), divide_up(n, kWarps) * (pairs < kMostPairs ? pairs : kMostPairs),
                                32 * kWarps, 0, 1, Floats(x), Ints(experts), RowWeights<T>(w.data, n, k),
                                Floats(call->operands[3]), pairs, slots, w.dims[0], n, k, call->attrs[0].i != 0);
}
}  // namespace

IX_KERNEL(moe_linear_f32, IX_MOE_LINEAR("f32", "row_f32", "f32"), "numerics=f32", launch<float>, nullptr)
IX_KERNEL(moe_linear_bf16, IX_MOE_LINEAR("f32", "row_bf16", "f32"), "numerics=f32", launch<__nv_bfloat16>, nullptr)
IX_KERNEL(moe_linear_f16, IX_MOE_LINEAR("f32", "row_f16", "f32"), "numerics=f32", launch<__half>, nullptr)
