// top_k, top_p and min_p: which of a row's tokens may be drawn, see "The sample program" in docs/plan.md. Over the
// slices of a row that the blocks of a team hold, or, where few can be meant, over a sorted list of them in one block:
// the same tokens either way.
#pragma once
#include "cuda/sample/philox.h"
#include "cuda/sample/select.h"

namespace ix::cuda {

struct FilterRule {
  int top_k;           // 0 = off
  float top_p, min_p;  // 1 and 0 = off
  __device__ bool by_rank(int columns) const { return top_k > 0 && top_k < columns; }
  __device__ bool by_mass() const { return top_p < 1; }
  __device__ bool active(int columns) const { return by_rank(columns) || by_mass() || min_p > 0; }
  __device__ bool heavy(float z, float top) const { return !(min_p > 0) || expf(z - top) >= fminf(min_p, 1.0f); }
  // a token is kept if those before it have less
  __device__ uint64_t wanted(uint64_t mass) const {
    return max(uint64_t(1), uint64_t(ceil(double(top_p) * double(mass))));
  }
};

// exp(z - top) in units of 2^-32: sums of any order are equal.
__device__ inline uint64_t whole_weight(float z, float top) { return uint64_t(expf(z - top) * 4294967296.0f + 0.5f); }

// A block's columns of a row: z without NaN.
struct Slice {
  float* z;
  int first, count;
};

// What top_k and top_p leave of a row: tokens whose value is above `key`, and among equals those up to `last_token`.
struct Allowed {
  uint32_t key = 0, last_token = UINT32_MAX;
  __device__ bool operator()(float z, uint32_t token) const {
    const uint32_t k = order_key(z);
    return z > -INFINITY && (k > key || (k == key && token <= last_token));
  }
};

// `top` is the largest value of the row, finite; only values >= least are meant. `mass` is the weight of the whole row,
// of use if top_k does not cut.
template <class Members>
__device__ Allowed filter(Members& team, const Slice& slice, const FilterRule& rule, int columns, float top,
                          float least, uint64_t mass) {
  Allowed allowed;
  const uint32_t most = order_key(top);
  const auto key_of = [&](int i) { return order_key(slice.z[i]); };
  const auto one = [](int) { return uint64_t(1); };
  allowed.key = order_key(least);
  const auto kept = [&](int i) { return slice.z[i] > -INFINITY && key_of(i) >= allowed.key; };
  if (rule.by_rank(columns))
    allowed.key = select(team, slice.count, uint64_t(rule.top_k), allowed.key, most, key_of, kept, one).key;
  if (!rule.by_mass()) return allowed;
  const auto weight = [&](int i) { return whole_weight(slice.z[i], top); };
  if (rule.by_rank(columns)) {
    mass = 0;
    for (int i = threadIdx.x; i < slice.count; i += kThreads) mass += kept(i) ? weight(i) : 0;
    mass = team.sum(mass);
  }
  const uint64_t wanted = rule.wanted(mass);
  const Selection cut = select(team, slice.count, wanted, allowed.key, most, key_of, kept, weight);
  allowed.key = cut.key;
  const uint64_t each = max(uint64_t(1), whole_weight(order_value(cut.key), top)),
                 ties = (wanted - min(wanted, cut.before) + each - 1) / each;
  if (ties * each < cut.at)
    allowed.last_token = columns - select(
                                       team, slice.count, max(uint64_t(1), ties), 1, columns,
                                       [&](int i) { return uint32_t(columns - slice.first - i); },
                                       [&](int i) { return key_of(i) == cut.key; }, one)
                                       .key;
  return allowed;
}

// Draws from a list in shared memory that holds, in any order, all that the rule may leave. For one block.
constexpr int kListed = 768;
__device__ inline Best draw_listed(Best* list, int count, const FilterRule& rule, int columns, float top, uint64_t mass,
                                   const PhiloxKey& key) {
  constexpr int kEach = (kListed + kThreads - 1) / kThreads;
  Best mine[kEach];
  int rank[kEach] = {};
#pragma unroll
  for (int e = 0; e < kEach; e++) {
    const int i = threadIdx.x + e * kThreads;
    if (i >= count) continue;
    mine[e] = list[i];
    for (int j = 0; j < count; j++) rank[e] += before(list[j], mine[e]);
  }
  __syncthreads();
#pragma unroll
  for (int e = 0; e < kEach; e++)
    if (int(threadIdx.x) + e * kThreads < count) list[rank[e]] = mine[e];
  __syncthreads();

  const bool by_rank = rule.by_rank(columns) && rule.top_k < count;
  const float last = by_rank ? list[rule.top_k - 1].value : -INFINITY;
  bool kept[kEach];
  uint64_t weight[kEach] = {}, sum = 0, all = 0;
#pragma unroll
  for (int e = 0; e < kEach; e++) {
    const int i = threadIdx.x * kEach + e;
    mine[e] = i < count ? list[i] : nothing();
    kept[e] = i < count && (!by_rank || mine[e].value >= last);
    if (kept[e] && rule.by_mass()) weight[e] = whole_weight(mine[e].value, top);
    sum += weight[e];
  }
  if (rule.by_mass()) {
    uint64_t earlier = block_scan(sum, &all) - sum;
    const uint64_t wanted = rule.wanted(rule.by_rank(columns) ? all : mass);
#pragma unroll
    for (int e = 0; e < kEach; e++) {
      kept[e] &= earlier < wanted;
      earlier += weight[e];
    }
  }
  Best drawn = nothing();
#pragma unroll
  for (int e = 0; e < kEach; e++) {
    if (!kept[e] || !rule.heavy(mine[e].value, top)) continue;
    const uint32_t token = mine[e].token;
    uint32_t words[4];
    key.words(token / 4, words);
    const uint32_t word = token & 2 ? token & 1 ? words[3] : words[2] : token & 1 ? words[1] : words[0];
    drawn = better(drawn, {mine[e].value + gumbel(word), int(token)});
  }
  Team<1> alone{nullptr, 0};
  return alone.best(drawn);
}

}  // namespace ix::cuda
