// One row of `sample` and the blocks that work on it, each on a slice of its columns: from the logits to what may be
// drawn, the draw, and the log-probabilities.
#pragma once
#include "cuda/sample/filter.h"

namespace ix::cuda {

constexpr int kFours = kThreads * 4;                                   // columns that the threads take at once, 4 each
constexpr int kBase = 2 * sizeof(Histogram) + kListed * sizeof(Best);  // bytes of shared memory before the slice

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
  int slice;  // columns of a block, a multiple of 4
  float* workspace;
};

template <class T>
__device__ T at(const T* values, int s) {  // past L1: written by the host or an earlier kernel
  return __ldcg(values + s);
}

// What the blocks of a row tell each other of z: the best, the least finite value, and a value that enough columns
// reach.
struct Summary {
  Best best;
  float least;
  uint32_t bound;  // order_key
};
__device__ inline Summary joined(Summary a, Summary b) {
  return {better(a.best, b.best), fminf(a.least, b.least), min(a.bound, b.bound)};
}
// The same of the logits as they came, with the sum of exp(x - top).
struct Mass {
  float top;
  uint32_t bound;
  double sum;
};
__device__ inline Mass joined(Mass a, Mass b) {
  const uint32_t bound = min(a.bound, b.bound);
  if (!(a.top > -INFINITY)) return {b.top, bound, b.sum};
  if (!(b.top > -INFINITY)) return {a.top, bound, a.sum};
  const float top = fmaxf(a.top, b.top);
  return {top, bound, a.sum * exp(double(a.top) - top) + b.sum * exp(double(b.top) - top)};
}
// Weights of z: all, and of what is at most 2, 4, 8, 16 below the top.
constexpr int kLevels = 4;
struct Levels {
  uint64_t all;
  float above[kLevels];
};
__device__ inline float level_bound(int level) { return -float(2 << level); }

template <int kBlocks>
struct Row {
  const Operands& o;
  const int s;
  Team<kBlocks> team;
  Slice slice;
  Best* list;
  uint32_t* listed;  // [2] entries of the first and the second list
  const float* logits;
  uint32_t* history;   // nullptr: none
  int target, wanted;  // log-probabilities
  float temperature;
  FilterRule rule;
  PhiloxKey key;
  // of this thread's columns
  Best best = nothing();
  float least = INFINITY, raw_top = -INFINITY, raw_sum = 0;

  __device__ Row(const Operands& o, char* shared, uint32_t* listed)
      : o(o),
        s(blockIdx.x / kBlocks),
        team{reinterpret_cast<Histogram*>(shared), blockIdx.x % kBlocks},
        listed(listed) {
    list = reinterpret_cast<Best*>(shared + 2 * sizeof(Histogram));
    float* staged = reinterpret_cast<float*>(shared + kBase);
    const int first = team.rank * o.slice;
    slice = {kBlocks > 1 ? staged : o.workspace + int64_t(s) * o.slice, first, max(0, min(o.slice, o.columns - first))};
    logits = o.logits[s];
    const int state = at(o.row_state, s);
    history = state >= 0 ? o.history[state] : nullptr;
    target = at(o.target, s), wanted = min(at(o.num_logprobs, s), min(o.columns, o.top));
    temperature = at(o.temperature, s);
    rule = {at(o.top_k, s), at(o.top_p, s), at(o.min_p, s)};
    key = {{at(o.seed[s], 0), at(o.seed[s], 1)}, {uint32_t(at(o.position, s)), uint32_t(at(o.sample_index, s)), 0}};
  }
  __device__ bool drawn() const { return target < 0; }
  __device__ bool filtered() const { return drawn() && temperature > 0 && rule.active(o.columns); }
  __device__ bool first_thread() const { return team.rank == 0 && threadIdx.x == 0; }

  // Starts the copy of the slice, in kParts groups; a thread copies the columns that it will look at itself.
  static constexpr int kParts = 4;
  __device__ int part_columns() const { return (slice.count + kParts * kFours - 1) / (kParts * kFours) * kFours; }
  __device__ void stage() {
    if constexpr (kBlocks > 1) {
      const uint64_t policy = policy_evict_first();
      for (int part = 0, i = threadIdx.x * 4; part < kParts; part++) {
        for (; i < min(slice.count, (part + 1) * part_columns()); i += kFours)
          copy_async(shared_address(slice.z + i), logits + slice.first + i, min(16, (slice.count - i) * 4), policy);
        copy_async_commit();
      }
    } else {
      for (int i = threadIdx.x; i < slice.count; i += kThreads) slice.z[i] = at(logits, i);
      __syncthreads();
    }
  }
  __device__ static void wait_for_part(int part) {
    if (part == 0) copy_async_wait<3>();
    if (part == 1) copy_async_wait<2>();
    if (part == 2) copy_async_wait<1>();
    if (part == 3) copy_async_wait<0>();
  }
  // The first of equal tokens adds all of them, in order. True if there are any.
  __device__ bool add_biases() {
    const int first = at(o.bias_start, s), count = at(o.bias_start, s + 1) - first;
    if (count <= 0) return false;
    wait_for_part(kParts - 1);
    __syncthreads();
    const int32_t* tokens = o.bias_token + first;
    for (int i = threadIdx.x; i < count; i += kThreads) {
      const int token = at(tokens, i), column = token - slice.first;
      if (token < slice.first || column >= slice.count) continue;
      bool is_first = true;
      for (int j = 0; j < i && is_first; j++) is_first = at(tokens, j) != token;
      if (!is_first) continue;
      float sum = slice.z[column];
      for (int j = i; j < count; j++)
        if (at(tokens, j) == token) sum += at(o.bias_value, first + j);
      slice.z[column] = sum;
    }
    __syncthreads();
    return true;
  }
  // Makes z of the slice: the logits after bias, mask, penalties and temperature. Fills what this thread knows of it.
  __device__ void prepare() {
    const bool biased = drawn() && add_biases();
    const int mask_row = drawn() && o.mask.data ? at(o.mask_row, s) : -1;
    const uint32_t* mask = mask_row >= 0 ? o.mask[mask_row] : nullptr;
    const float repetition = at(o.repetition, s), presence = at(o.presence, s), frequency = at(o.frequency, s);
    const bool penalties = drawn() && history && (repetition != 1 || presence != 0 || frequency != 0);
    for (int part = 0, i = threadIdx.x * 4; part < kParts; part++) {
      wait_for_part(part);
      for (; i < min(slice.count, (part + 1) * part_columns()); i += kFours) {
        float4& place = *reinterpret_cast<float4*>(slice.z + i);
        const float4 four = place;
        float v[4] = {four.x, four.y, four.z, four.w};
        const int n = min(4, slice.count - i), token = slice.first + i;
        if (wanted >= 0) {
          float raw[4], highest = raw_top;
#pragma unroll
          for (int j = 0; j < 4; j++) {
            raw[j] = j >= n ? -INFINITY : biased ? at(logits, token + j) : v[j];
            highest = fmaxf(highest, raw[j]);
          }
          if (highest > raw_top) raw_sum *= expf(raw_top - highest), raw_top = highest;
#pragma unroll
          for (int j = 0; j < 4; j++)
            if (raw[j] > -INFINITY) raw_sum += expf(raw[j] - raw_top);
        }
        if (!drawn()) continue;
        if (mask || n < 4) {
          const uint32_t bits = (mask ? at(mask, token / 32) >> (token % 32) : ~0u) & ((1u << n) - 1);
#pragma unroll
          for (int j = 0; j < 4; j++)
            if (!(bits >> j & 1)) v[j] = -INFINITY;
        }
        if (penalties) {
          uint32_t seen[4];
#pragma unroll
          for (int j = 0; j < 4; j++) seen[j] = j < n ? at(history, token + j) : 0;
#pragma unroll
          for (int j = 0; j < 4; j++) {
            const float times = float(int32_t(seen[j] & 0x7FFFFFFFu));
            if (seen[j]) v[j] = v[j] < 0 ? v[j] * repetition : v[j] / repetition;
            v[j] = v[j] - frequency * times - (times > 0 ? presence : 0.0f);
          }
        }
        if (temperature > 0) {
#pragma unroll
          for (int j = 0; j < 4; j++) {
            v[j] = v[j] / temperature;
            if (!(v[j] > -INFINITY))
              v[j] = -INFINITY;
            else
              least = fminf(least, v[j]);
          }
          place = make_float4(v[0], v[1], v[2], v[3]);
        }
#pragma unroll
        for (int j = 0; j < 4; j++)
          if (v[j] > best.value) best = {v[j], token + j};
      }
    }
    __syncthreads();
  }

  // The key of a value that at least k columns of the row reach, if there are so many, once the least of all blocks is
  // taken: so many threads' maxima reach it as are the block's share of k. Close to the k-th largest for small k.
  __device__ static uint32_t bound_of(float mine, int k) {
    const int share = (k + kBlocks - 1) / kBlocks;
    const uint32_t own = order_key(mine);
    uint32_t bound = 0;
    if (share <= kThreads)
      for (uint32_t bit = 1u << 31; bit >= 1u << 16; bit /= 2)
        if (__syncthreads_count(own >= (bound | bit)) >= share) bound |= bit;
    return bound;
  }
  __device__ static float bound_value(uint32_t key) {
    return key > order_key(-INFINITY) ? order_value(key) : -INFINITY;
  }

  // What of value(i) reaches the bound comes to the first block's list, in any order; `own` is the largest of this
  // thread's columns. False if it is too much.
  template <class Value>
  __device__ bool gather(int number, float bound, float own, Value value, int* count) {
    const int lane = threadIdx.x % 32, base = (threadIdx.x - lane) * 4;
    uint32_t* counter = team.of(&listed[number], 0);
    Best* there = team.of(list, 0);
    const auto in = [&](float x) { return x >= bound && x > -INFINITY; };
    // the columns of one thread after the other, by its whole warp
    for (uint32_t those = __ballot_sync(~0u, in(own)); those != 0; those &= those - 1) {
      for (int i0 = base + (__ffs(those) - 1) * 4; i0 < slice.count; i0 += 8 * kFours) {
        const int i = i0 + lane % 4 + lane / 4 * kFours;
        const float x = i < slice.count ? value(i) : -INFINITY;
        const uint32_t found = __ballot_sync(~0u, in(x));
        if (found == 0) continue;
        uint32_t place = lane == 0 ? atomicAdd(counter, uint32_t(__popc(found))) : 0;
        place = __shfl_sync(~0u, place, 0);
        if (place >= kListed) {
          those = 1;  // the list is full: leave
          break;
        }
        place += __popc(found & ((1u << lane) - 1));
        if (in(x) && place < kListed) there[place] = {x, slice.first + i};
      }
    }
    team.meet();
    *count = int(*counter);
    return *count <= kListed;
  }

  // Log-probabilities of the most likely tokens, from the logits as they came. Returns the logarithm of all mass.
  __device__ double report_likely() {
    const Mass mass = team.reduce(Mass{raw_top, wanted > 0 ? bound_of(raw_top, wanted) : 0, double(raw_sum)},
                                  Mass{-INFINITY, UINT32_MAX, 0}, [](Mass a, Mass b) { return joined(a, b); });
    const double log_sum = double(mass.top) + log(mass.sum);
    const auto put = [&](int j, Best likely) {
      o.top_tokens[s][j] = likely.token, o.top_logprobs[s][j] = float(likely.value - log_sum);
    };
    if (wanted == 0) return log_sum;
    const auto raw = [&](int i) { return at(logits, slice.first + i); };
    int count;
    if (gather(0, bound_value(mass.bound), raw_top, raw, &count)) {
      for (int i = threadIdx.x; i < count && team.rank == 0; i += kThreads) {
        int rank = 0;
        for (int j = 0; j < count && rank < wanted; j++) rank += before(list[j], list[i]);
        if (rank < wanted) put(rank, list[i]);
      }
      __syncthreads();
      return log_sum;
    }
    Best last{INFINITY, -1};
    for (int j = 0; j < wanted; j++) {  // the best of those behind the last one
      Best next = nothing();
      for (int i = threadIdx.x; i < slice.count; i += kThreads) {
        const Best x{raw(i), slice.first + i};
        if (x.value > -INFINITY && before(last, x)) next = better(next, x);
      }
      last = team.best(next);
      if (last.token >= o.columns) break;
      if (first_thread()) put(j, last);
    }
    return log_sum;
  }

  // A value below which nothing may be drawn if top_k does not cut; *mass: the weight of the row if top_p asks for it.
  __device__ float filter_bound(float top, uint64_t* mass) {
    constexpr float kSlack = 1e-3f;  // the bounds only save work: what lies above is tested exactly
    float bound = -INFINITY;
    if (rule.by_mass()) {
      Levels levels{};
      for (int i = threadIdx.x; i < slice.count; i += kThreads) {
        const float below = slice.z[i] - top, e = expf(below);
        levels.all += uint64_t(e * 4294967296.0f + 0.5f);
#pragma unroll
        for (int l = 0; l < kLevels; l++)
          if (below >= level_bound(l)) levels.above[l] += e;
      }
      levels = team.reduce(levels, Levels{}, [](Levels a, const Levels& b) {
        a.all += b.all;
#pragma unroll
        for (int l = 0; l < kLevels; l++) a.above[l] += b.above[l];
        return a;
      });
      *mass = levels.all;
      const float all = float(levels.all) * 0x1p-32f;
      bound = top + logf(fmaxf(1.0f - rule.top_p, 0.0f) * (all / float(o.columns))) - kSlack;
#pragma unroll
      for (int l = kLevels - 1; l >= 0; l--)
        if (levels.above[l] > (rule.top_p + kSlack) * all) bound = fmaxf(bound, top + level_bound(l) - kSlack);
    }
    if (rule.min_p > 0) bound = fmaxf(bound, top + logf(fminf(rule.min_p, 1.0f)) - kSlack);
    return bound;
  }

  // The best of z and noise. What the noise cannot lift over what some token has in any case needs no logarithm:
  // -log(-log(u)) > x only if 1 - u < exp(-x).
  __device__ Best draw(const Allowed& allowed, bool heavy_only, float top) const {
    Best drawn = nothing();
    float reached = top - kMostBelow;
    for (int i0 = 0; i0 < slice.count; i0 += kFours) {
      const int i = i0 + threadIdx.x * 4, token = slice.first + i;
      float z[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, most = -INFINITY;
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const float x = i + j < slice.count ? slice.z[i + j] : -INFINITY;
        if (allowed(x, token + j) && (!heavy_only || rule.heavy(x, top))) most = fmaxf(most, z[j] = x);
      }
      if (__any_sync(~0u, most > -INFINITY && !(most + kMaxGumbel < reached))) {
        uint32_t words[4];
        key.words(token / 4, words);
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const float left = (float((1u << 24) - 1 - (words[j] >> 8)) + 0.5f) * 0x1p-24f;
          if (z[j] > -INFINITY && !(left >= __expf(z[j] - reached) * 1.0001f))
            drawn = better(drawn, {z[j] + gumbel(words[j]), token + j});
        }
        reached = fmaxf(reached, order_value(__reduce_max_sync(~0u, order_key(drawn.value))));
      }
    }
    return drawn;
  }

  // The token, for the first block of the row at least. True if that block found it by itself.
  __device__ bool pick(int* token) {
    const Summary summary =
        team.reduce(Summary{best, least, filtered() && rule.by_rank(o.columns) ? bound_of(best.value, rule.top_k) : 0},
                    Summary{nothing(), INFINITY, UINT32_MAX}, [](Summary a, Summary b) { return joined(a, b); });
    const float top = summary.best.value;
    *token = summary.best.token < o.columns ? summary.best.token : 0;
    if (summary.best.token >= o.columns || !(temperature > 0)) return false;
    Best drawn;
    if (filtered() && top < INFINITY) {
      uint64_t mass = 0;
      const float bound = rule.by_rank(o.columns) ? bound_value(summary.bound) : filter_bound(top, &mass);
      int count;
      if (gather(1, bound, best.value, [&](int i) { return slice.z[i]; }, &count)) {
        if (team.rank == 0) *token = draw_listed(list, count, rule, o.columns, top, mass, key).token;
        return true;
      }
      const Allowed allowed = filter(team, slice, rule, o.columns, top, fmaxf(bound, summary.least), mass);
      drawn = draw(allowed, rule.min_p > 0, top);
    } else {
      drawn = draw(Allowed(), false, top);
    }
    *token = team.best(drawn).token;
    return false;
  }

  __device__ void run() {
    for (int j = threadIdx.x; j < o.top && team.rank == 0; j += kThreads)
      o.top_tokens[s][j] = -1, o.top_logprobs[s][j] = 0;
    double log_sum = 0;
    int token = target;
    if (drawn() || wanted >= 0) {
      stage();
      prepare();
      if (wanted >= 0) log_sum = report_likely();
      if (drawn() && pick(&token) && team.rank != 0) return team.leave();
    }
    if (first_thread()) {
      o.token[s][0] = token;
      const float raw = wanted >= 0 && token < o.columns ? at(logits, token) : -INFINITY;
      o.logprob[s][0] = wanted < 0 ? 0.0f : raw > -INFINITY ? float(raw - log_sum) : -INFINITY;
      if (drawn() && history) atomicAdd(history + token, 1u);
    }
    team.meet();  // until then others may read this block's memory
  }
};

}  // namespace ix::cuda
