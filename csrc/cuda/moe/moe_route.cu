// moe_route: experts and weights of each token, see docs/plan.md. NaN logits lose against everything; where there are
// fewer experts than `top`, the surplus columns get expert -1 with weight 0.
#include "cuda/kernel.h"

namespace {
using namespace ix::cuda;
enum Scoring { kSoftmaxAll = 0, kSoftmaxTop = 1, kSigmoid = 2 };

// Floats as integers of the same order, 0 below all of them; NaN becomes -Infinity, -0 equals 0.
__device__ uint32_t ordered(float x) {
  const uint32_t bits = __float_as_uint(x == x ? x + 0.0f : -INFINITY);
  return bits >> 31 ? ~bits : bits | 1u << 31;
}
__device__ float from_ordered(uint32_t key) { return __uint_as_float(key >> 31 ? key & ~(1u << 31) : ~key); }

struct Picked {
  int expert;
  float weight;
};

// A warp for each token. Experts are picked one after the other, the lowest of those with the largest logit.
__global__ void __launch_bounds__(32) route_kernel(Floats logits, Ints experts, Floats weights, int num_experts, int k,
                                                   int scoring, bool renormalize, float factor) {
  extern __shared__ uint32_t keys[];  // 0: picked
  Picked* picked = reinterpret_cast<Picked*>(keys + num_experts);
  const int token = blockIdx.x, lane = threadIdx.x, count = min(k, num_experts);
  allow_next_kernel();
  wait_for_earlier_kernels();
  for (int e = lane; e < num_experts; e += 32) keys[e] = ordered(logits(token, e));
  __syncwarp();
  float top = 0, all = 0, kept = 0;
  for (int j = 0; j < count; j++) {
    uint32_t best = 0, expert = UINT32_MAX;
    for (int e = lane; e < num_experts; e += 32)
      if (keys[e] > best) best = keys[e], expert = e;
    const uint32_t largest = __reduce_max_sync(~0u, best);
    expert = __reduce_min_sync(~0u, best == largest ? expert : UINT32_MAX);
    const float logit = from_ordered(largest);
    if (j == 0) {
      top = logit > -INFINITY ? logit : 0.0f;
      if (scoring == kSoftmaxAll && !renormalize) {
        for (int e = lane; e < num_experts; e += 32) all += expf(from_ordered(keys[e]) - top);
        all = warp_sum(all);
      }
    }
    const float weight = scoring == kSigmoid ? 1.0f / (1.0f + expf(-logit)) : expf(logit - top);
    kept += weight;
    if (lane == 0) picked[j] = {int(expert), weight}, keys[expert] = 0;
    __syncwarp();
  }
  const float divisor = renormalize || scoring == kSoftmaxTop ? kept : scoring == kSoftmaxAll ? all : 1.0f;
  for (int j = lane; j < k; j += 32) {
    experts[token][j] = j < count ? picked[j].expert : -1;
    weights[token][j] = j < count && divisor > 0 ? picked[j].weight / divisor * factor : 0.0f;
  }
}

void launch(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor &logits = call->operands[0], &experts = call->operands[1], &weights = call->operands[2];
  if (logits.dims[0] <= 0) return;
  launch_kernel<route_kernel>(stream, current_gpu(), logits.dims[0], 32,
                              logits.dims[1] * sizeof(uint32_t) + experts.dims[1] * sizeof(Picked), 1, Floats(logits),
                              Ints(experts), Floats(weights), logits.dims[1], experts.dims[1], int(call->attrs[1].i),
                              call->attrs[2].i != 0, float(call->attrs[3].f));
}

}  // namespace

IX_KERNEL(moe_route,
          "moe_route(logits: f32[T,E], top: i32, scoring: i32, renormalize: i32, factor: f32) -> i32[T,k], f32[T,k]",
          "", launch, nullptr)
