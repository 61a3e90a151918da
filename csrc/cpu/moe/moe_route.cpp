// moe_route: experts and weights of each token, see docs/plan.md. NaN logits lose against everything; where there are
// fewer experts than `top`, the surplus columns get expert -1 with weight 0.
#include <cmath>

#include "cpu/elementwise/rows.h"

namespace {
using namespace ix::cpu;

enum Scoring { kSoftmaxAll = 0, kSoftmaxTop = 1, kSigmoid = 2 };

// The k largest in descending order, lowest index first among ties: insertion into a short sorted list.
int pick_top(const float* logits, int num_experts, int k, int32_t* experts, float* picked) {
  int count = 0;
  for (int e = 0; e < num_experts; e++) {
    const float v = logits[e] == logits[e] ? logits[e] : -__builtin_inff();
    if (count == k && !(v > picked[k - 1])) continue;
    int at = count < k ? count++ : k - 1;
    for (; at > 0 && v > picked[at - 1]; at--) picked[at] = picked[at - 1], experts[at] = experts[at - 1];
    picked[at] = v;
    experts[at] = e;
  }
  return count;
}

void route(const float* logits, int num_experts, int k, int scoring, bool renormalize, float factor, int32_t* experts,
           float* weights) {
  const int count = pick_top(logits, num_experts, k, experts, weights);
  const float top = count && weights[0] > -__builtin_inff() ? weights[0] : 0.0f;
  float total = 0;
  if (scoring == kSoftmaxAll)
    for (int e = 0; e < num_experts; e++) total += logits[e] == logits[e] ? expf(logits[e] - top) : 0.0f;
  float kept = 0;
  for (int j = 0; j < count; j++) {
    weights[j] = scoring == kSigmoid ? 1.0f / (1.0f + expf(-weights[j])) : expf(weights[j] - top);
    kept += weights[j];
  }
  const bool share = renormalize || scoring == kSoftmaxTop;
  const float divisor = share ? kept : scoring == kSoftmaxAll ? total : 1.0f;
  for (int j = 0; j < count; j++) weights[j] = divisor > 0 ? weights[j] / divisor * factor : 0.0f;
  for (int j = count; j < k; j++) experts[j] = -1, weights[j] = 0;
}

void launch(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor &logits = call->operands[0], &experts = call->operands[1], &weights = call->operands[2];
  const int scoring = int(call->attrs[1].i);
  for_rows(stream, logits.dims[0], logits.dims[1] * 8, [&](int t) {
    route(row(logits, t), logits.dims[1], experts.dims[1], scoring, call->attrs[2].i != 0, float(call->attrs[3].f),
          row_i(experts, t), row(weights, t));
  });
}
}  // namespace

IX_KERNEL(moe_route,
          "moe_route(logits: f32[T,E], top: i32, scoring: i32, renormalize: i32, factor: f32) -> i32[T,k], f32[T,k]",
          "", launch, nullptr)
