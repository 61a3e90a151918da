// moe_route, moe_combine: see docs/plan.md. NaN logits lose against everything; where there are fewer experts than
// `top`, the surplus columns get expert -1 with weight 0.
#include "cuda/kernel.h"

namespace {
using namespace ix::cuda;
enum Scoring { kSoftmaxAll = 0, kSoftmaxTop = 1, kSigmoid = 2 };
constexpr int kWarps = 4;

__device__ float usable(float x) { return x == x ? x : -INFINITY; }

// A warp for each token. Experts are picked one after the other: the best of those that come behind the last one
// picked, in the order of larger logits first and lower indices among equals.
__global__ void route_kernel(Floats logits, Ints experts, Floats weights, int tokens, int num_experts, int k,
                             int scoring, bool renormalize, float factor) {
  const int token = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (token >= tokens) return;
  const float* x = logits[token];
  const int count = min(k, num_experts);
  float last = INFINITY, top = 0, kept = 0;
  int last_expert = -1;
  for (int j = 0; j < count; j++) {
    float best = -INFINITY;
    int expert = INT32_MAX;
    for (int e = lane; e < num_experts; e += 32) {
      const float v = usable(x[e]);
      if ((v < last || (v == last && e > last_expert)) && (v > best || expert == INT32_MAX)) best = v, expert = e;
    }
    for (int offset = 16; offset > 0; offset /= 2) {
      const float v = __shfl_xor_sync(~0u, best, offset);
      const int e = __shfl_xor_sync(~0u, expert, offset);
      if (expert == INT32_MAX || (e != INT32_MAX && (v > best || (v == best && e < expert)))) best = v, expert = e;
    }
    last = best, last_expert = expert;
    if (j == 0) top = best > -INFINITY ? best : 0.0f;
    const float weight = scoring == kSigmoid ? 1.0f / (1.0f + expf(-best)) : expf(best - top);
    kept += weight;
    if (lane == 0) experts[token][j] = expert, weights[token][j] = weight;
  }
  float divisor = 1;
  if (renormalize || scoring == kSoftmaxTop) {
    divisor = kept;
  } else if (scoring == kSoftmaxAll) {
    divisor = 0;
    for (int e = lane; e < num_experts; e += 32) divisor += expf(usable(x[e]) - top);
    divisor = warp_sum(divisor);
  }
  if (lane == 0)
    for (int j = 0; j < k; j++) {
      if (j < count) {
        weights[token][j] = divisor > 0 ? weights[token][j] / divisor * factor : 0.0f;
      } else {
        experts[token][j] = -1, weights[token][j] = 0;
      }
    }
}

void launch_route(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor &logits = call->operands[0], &experts = call->operands[1], &weights = call->operands[2];
  if (logits.dims[0] <= 0) return;
  route_kernel<<<divide_up(logits.dims[0], kWarps), 32 * kWarps, 0, stream->handle>>>(
      Floats(logits), Ints(experts), Floats(weights), logits.dims[0], logits.dims[1], experts.dims[1],
      int(call->attrs[1].i), call->attrs[2].i != 0, float(call->attrs[3].f));
}

void launch_combine(ix_stream* stream, const ix_kernel_call* call) {
  const Floats x(call->operands[0]), weights(call->operands[1]), y(call->operands[2]);
  const int slots = call->operands[1].dims[1], width = call->operands[2].dims[1];
  for_elements(stream, call->operands[2].dims[0], width, [=] __device__(int r, int c) {
    float sum = 0;
    for (int j = 0; j < slots; j++) sum = fmaf(x[r][int64_t(j) * width + c], weights[r][j], sum);
    y[r][c] = sum;
  });
}
}  // namespace

IX_KERNEL(moe_route,
          "moe_route(logits: f32[T,E], top: i32, scoring: i32, renormalize: i32, factor: f32) -> i32[T,k], f32[T,k]",
          "", launch_route, nullptr)
IX_KERNEL(moe_combine, "moe_combine(y: f32[T,M], weights: f32[T,k]) -> f32[T,D]", "", launch_combine, nullptr)
