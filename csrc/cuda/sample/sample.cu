// sample: from logits to tokens and log-probabilities, see "The sample program" in docs/plan.md. A block for each row.
// NaN counts as -infinity; a row without any finite logit gives token 0.
#include "cuda/sample/philox.h"
#include "cuda/sample/select.h"

namespace {
using namespace ix::cuda;

struct Operands {
  Floats logits;
  const int32_t* row_state;
  const int32_t* position;
  Rows<uint32_t> seed;
  const int32_t *sample_index, *target;
  const float* temperature;
  const int32_t* top_k;
  const float *top_p, *min_p, *repetition, *presence, *frequency;
  const int32_t *num_logprobs, *bias_start, *bias_token;
  const float* bias_value;
  Rows<uint32_t> history, mask;
  const int32_t* mask_row;
  Ints token;
  Floats logprob;
  Ints top_tokens;
  Floats top_logprobs;
  int columns, top;
  float* workspace;
};

// z = the logits after bias, mask and penalties
__device__ void adjust(const Operands& o, int s, const float* logits, const uint32_t* history, float* z) {
  for (int i = threadIdx.x; i < o.columns; i += kThreads) z[i] = logits[i];
  __syncthreads();
  const int first = o.bias_start[s], count = o.bias_start[s + 1] - first;
  const int32_t* tokens = o.bias_token + first;
  for (int i = threadIdx.x; i < count; i += kThreads) {  // the first of equal tokens adds all of them, in order
    bool is_first = true;
    for (int j = 0; j < i && is_first; j++) is_first = tokens[j] != tokens[i];
    if (!is_first || tokens[i] < 0 || tokens[i] >= o.columns) continue;
    float sum = z[tokens[i]];
    for (int j = i; j < count; j++)
      if (tokens[j] == tokens[i]) sum += o.bias_value[first + j];
    z[tokens[i]] = sum;
  }
  __syncthreads();
  const uint32_t* mask = o.mask.data && o.mask_row[s] >= 0 ? o.mask[o.mask_row[s]] : nullptr;
  const float repetition = o.repetition[s], presence = o.presence[s], frequency = o.frequency[s];
  const bool penalties = history && (repetition != 1 || presence != 0 || frequency != 0);
  if (!mask && !penalties) return;
  for (int i = threadIdx.x; i < o.columns; i += kThreads) {
    float v = z[i];
    if (mask && !(mask[i / 32] >> (i % 32) & 1)) v = -INFINITY;
    if (penalties) {
      const uint32_t seen = history[i];
      const float times = float(int32_t(seen & 0x7FFFFFFFu));
      if (seen) v = v < 0 ? v * repetition : v / repetition;
      v = v - frequency * times - (times > 0 ? presence : 0.0f);
    }
    z[i] = v;
  }
  __syncthreads();
}

// What top_k, top_p and min_p leave: tokens whose value is above `key`, and among equals those up to `last_token`.
struct Allowed {
  uint32_t key = 0;
  uint32_t last_token = UINT32_MAX;
  float least = -INFINITY;  // of min_p
  __device__ bool operator()(float z, uint32_t token) const {
    const uint32_t k = order_key(z);
    return z > -INFINITY && z >= least && (k > key || (k == key && token <= last_token));
  }
};

// z: logits / temperature without NaN, `top` the largest of them, finite
__device__ Allowed filter(const Operands& o, int s, const float* z, float top) {
  Allowed allowed;
  const int top_k = o.top_k[s], n = o.columns;
  const float top_p = o.top_p[s], min_p = fminf(o.min_p[s], 1.0f);
  const auto key_of = [&](int i) { return order_key(z[i]); };
  if (top_k > 0 && top_k < n) {
    const auto finite = [&](int i) { return z[i] > -INFINITY; };
    allowed.key = select(n, uint64_t(top_k), key_of, finite, [](int) { return uint64_t(1); }).key;
  }
  if (top_p < 1) {
    const uint32_t floor = allowed.key;
    const auto kept = [&](int i) { return z[i] > -INFINITY && order_key(z[i]) >= floor; };
    const auto weight = [&](int i) {
      return uint64_t(expf(z[i] - top) * 4294967296.0f + 0.5f);
    };  // whole numbers: sums of any order are equal
    uint64_t mass = 0;
    for (int i = threadIdx.x; i < n; i += kThreads) mass += kept(i) ? weight(i) : 0;
    mass = block_reduce(mass, uint64_t(0), [](uint64_t a, uint64_t b) { return a + b; });
    // a token is kept if those before it have less than `wanted`
    const uint64_t wanted = max(uint64_t(1), uint64_t(ceil(double(top_p) * double(mass))));
    const Selection cut = select(n, wanted, key_of, kept, weight);
    allowed.key = cut.key;
    const uint64_t each = max(uint64_t(1), uint64_t(expf(order_value(cut.key) - top) * 4294967296.0f + 0.5f));
    const uint64_t ties = (wanted - min(wanted, cut.before) + each - 1) / each;
    const auto tied = [&](int i) { return order_key(z[i]) == cut.key; };
    allowed.last_token =
        ~select(
             n, max(uint64_t(1), ties), [](int i) { return ~uint32_t(i); }, tied, [](int) { return uint64_t(1); })
             .key;
  }
  if (min_p > 0) {  // the least value whose weight reaches min_p
    allowed.least = top;
    float least = INFINITY;
    for (int i = threadIdx.x; i < n; i += kThreads)
      if (z[i] > -INFINITY && expf(z[i] - top) >= min_p) least = fminf(least, z[i]);
    allowed.least = block_reduce(least, INFINITY, [](float a, float b) { return fminf(a, b); });
  }
  return allowed;
}

__device__ int draw(const Operands& o, int s, const float* z, const Allowed& allowed) {
  const PhiloxKey key{{o.seed[s][0], o.seed[s][1]}, {uint32_t(o.position[s]), uint32_t(o.sample_index[s]), 0}};
  Best best = nothing();
  for (int group = threadIdx.x; group * 4 < o.columns; group += kThreads) {
    const int count = min(4, o.columns - group * 4);
    float most = -INFINITY;
    bool any = false;
    for (int j = 0; j < count; j++)
      if (allowed(z[group * 4 + j], group * 4 + j)) any = true, most = fmaxf(most, z[group * 4 + j]);
    if (!any || most + kMaxGumbel < best.value) continue;
    uint32_t words[4];
    key.words(group, words);
    for (int j = 0; j < count; j++) {
      const int token = group * 4 + j;
      if (allowed(z[token], token)) best = better(best, {z[token] + gumbel(words[j]), token});
    }
  }
  best = block_best(best);
  return best.token < o.columns ? best.token : 0;
}

__device__ int pick(const Operands& o, int s, const float* logits, const uint32_t* history) {
  float* z = o.workspace + int64_t(blockIdx.x) * o.columns;
  adjust(o, s, logits, history, z);
  const float temperature = o.temperature[s];
  Best best = nothing();
  for (int i = threadIdx.x; i < o.columns; i += kThreads) {
    const float v = temperature > 0 ? z[i] / temperature : z[i];
    z[i] = v == v ? v : -INFINITY;
    if (v > -INFINITY) best = better(best, {v, i});
  }
  best = block_best(best);
  if (best.token >= o.columns) return 0;
  if (!(temperature > 0)) return best.token;
  return draw(o, s, z, best.value < INFINITY ? filter(o, s, z, best.value) : Allowed());
}

// Log-probabilities of the chosen token and of the most likely ones, from the logits as they came.
__device__ void report(const Operands& o, int s, const float* logits, int token) {
  const int wanted = min(o.num_logprobs[s], min(o.columns, o.top));
  for (int j = threadIdx.x; j < o.top; j += kThreads) o.top_tokens[s][j] = -1, o.top_logprobs[s][j] = 0;
  if (threadIdx.x == 0) o.logprob[s][0] = 0;
  if (wanted < 0) return;
  float top = -INFINITY;
  for (int i = threadIdx.x; i < o.columns; i += kThreads) top = fmaxf(top, logits[i]);
  top = block_reduce(top, -INFINITY, [](float a, float b) { return fmaxf(a, b); });
  double sum = 0;
  for (int i = threadIdx.x; i < o.columns; i += kThreads)
    if (logits[i] > -INFINITY) sum += expf(logits[i] - top);
  sum = block_reduce(sum, 0.0, [](double a, double b) { return a + b; });
  const double log_sum = double(top) + log(sum);
  const auto logprob_of = [&](float logit) { return logit > -INFINITY ? float(logit - log_sum) : -INFINITY; };
  if (threadIdx.x == 0) o.logprob[s][0] = token < o.columns ? logprob_of(logits[token]) : -INFINITY;
  Best last{INFINITY, -1};
  for (int j = 0; j < wanted; j++) {  // the best of those behind the last one
    Best best = nothing();
    for (int i = threadIdx.x; i < o.columns; i += kThreads)
      if (logits[i] > -INFINITY && before(last, {logits[i], i})) best = better(best, {logits[i], i});
    last = block_best(best);
    if (last.token >= o.columns) return;
    if (threadIdx.x == 0) o.top_tokens[s][j] = last.token, o.top_logprobs[s][j] = logprob_of(last.value);
  }
}

__global__ void __launch_bounds__(kThreads) sample_kernel(Operands o) {
  const int s = blockIdx.x;
  const float* logits = o.logits[s];
  uint32_t* history = o.row_state[s] >= 0 ? o.history[o.row_state[s]] : nullptr;
  const bool drawn = o.target[s] < 0;
  const int token = drawn ? pick(o, s, logits, history) : o.target[s];
  report(o, s, logits, token);
  if (threadIdx.x != 0) return;
  o.token[s][0] = token;
  if (drawn && history) history[token]++;
}

size_t workspace(const ix_kernel_call* call, int) {
  return size_t(call->operands[0].dims[0]) * size_t(call->operands[0].dims[1]) * sizeof(float);
}

void launch(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor* t = call->operands;
  const auto ints = [&](int i) { return static_cast<const int32_t*>(t[i].data); };
  const auto floats = [&](int i) { return static_cast<const float*>(t[i].data); };
  const Operands o{Floats(t[0]),
                   ints(1),
                   ints(2),
                   Rows<uint32_t>(t[3]),
                   ints(4),
                   ints(5),
                   floats(6),
                   ints(7),
                   floats(8),
                   floats(9),
                   floats(10),
                   floats(11),
                   floats(12),
                   ints(13),
                   ints(14),
                   ints(15),
                   floats(16),
                   Rows<uint32_t>(t[17]),
                   Rows<uint32_t>(t[18]),
                   ints(19),
                   Ints(t[20]),
                   Floats(t[21]),
                   Ints(t[22]),
                   Floats(t[23]),
                   t[0].dims[1],
                   t[22].dims[1],
                   static_cast<float*>(call->workspace)};
  if (t[0].dims[0] > 0) sample_kernel<<<t[0].dims[0], kThreads, 0, stream->handle>>>(o);
}
}  // namespace

#define IX_SAMPLE                                                                                                      \
  "sample(logits: f32[S,V], row_state: i32[S], position: i32[S], seed: u32[S,2], sample_index: i32[S], target: "       \
  "i32[S], temperature: "                                                                                              \
  "f32[S], top_k: i32[S], top_p: f32[S], min_p: f32[S], repetition: f32[S], presence: f32[S], frequency: f32[S], "     \
  "num_logprobs: i32[S], "                                                                                             \
  "bias_start: i32[S], bias_token: i32[B], bias_value: f32[B], history: u32[H,V], mask?: u32[M,W], mask_row: i32[S], " \
  "top: i32) -> i32[S,1], "                                                                                            \
  "f32[S,1], i32[S,top], f32[S,top]"
IX_KERNEL(sample, IX_SAMPLE, "", launch, workspace)
