// top_k, top_p and min_p: which tokens of a row may be drawn, see "The sample program" in docs/plan.md. Work over the
// whole row is cut into chunks of fixed columns, so that the threads change no bit.
#pragma once
#include <cmath>

#include "cpu/sample/select.h"

namespace ix::cpu {
namespace {

constexpr int kChunk = 4096;  // columns, a multiple of kBlock
IX_INLINE int num_chunks(int columns) { return (columns + kChunk - 1) / kChunk; }

struct FilterRule {
  int top_k;           // 0 = off
  float top_p, min_p;  // 1 and 0 = off
  bool active(int columns) const { return (top_k > 0 && top_k < columns) || top_p < 1 || min_p > 0; }
};

// Masses of a chunk: in all, and of what is at most 2, 4, 6, ... below the largest logit of the row.
constexpr int kLevels = 8;
constexpr float kLevelStep = 2;
struct Masses {
  float all, above[kLevels];
};

struct SelectScratch {
  float *tops, *tops_copy;  // [num_blocks]
  Masses* masses;           // [num_chunks]
  Entry* entries;           // [columns]
};

// sum of exp(x - top), NaN counted as -infinity
IX_INLINE float sum_exp(const float* x, int n, float top) {
  Vf sum{};
  for_lanes(n, [&](int i, int count) __attribute__((always_inline)) {
    const Vf v = load_part(x + i, count);
    const Vf e = exp(v - splat(top));
    sum = sum + ((v == v) & (iota() < splat_i(count)) ? e : Vf{});
  });
  return sum_lanes(sum);
}

IX_INLINE Masses masses_of(const float* z, int n, float top) {
  Vf all{}, above[kLevels] = {};
  for_lanes(n, [&](int i, int count) __attribute__((always_inline)) {
    const Vf x = count == kLanes           ? load(z + i) - splat(top)
                 : iota() < splat_i(count) ? load_first(z + i, count) - splat(top)
                                           : splat(-kInf);
    const Vf e = exp(x);
    all = all + e;
    for (int level = 0; level < kLevels; level++)
      above[level] = above[level] + (x >= splat(-kLevelStep * float(level + 1)) ? e : Vf{});
  });
  Masses m{sum_lanes(all), {}};
  for (int level = 0; level < kLevels; level++) m.above[level] = sum_lanes(above[level]);
  return m;
}

IX_INLINE void set_weights(Entry* entries, int n, float top) {
  for (int i = 0; i < n; i += kLanes) {
    Vf v{};
    for (int j = 0; j < min(kLanes, n - i); j++) v[j] = entries[i + j].value - top;
    v = exp(v);
    for (int j = 0; j < min(kLanes, n - i); j++) entries[i + j].weight = v[j];
  }
}

// How many of the entries, in order, have less than `target` weight before them; brings those to the front.
inline int nucleus(Entry* entries, int n, double target) {
  int first = 0, last = n;
  double kept = 0;  // weight of [0, first)
  while (first < last) {
    const int at = partition(entries, first, last);
    double left = 0;
    for (int i = first; i < at; i++) left += entries[i].weight;
    if (kept + left >= target) {
      last = at;
    } else {
      kept += left + entries[at].weight;
      first = at + 1;
    }
  }
  return first;
}

// z: logits / temperature, -infinity = never, no NaN. s.tops: its block maxima, `top` the largest of them, finite.
// Leaves the tokens that may be drawn in s.entries, with weights exp(z - top), in no particular order; returns how
// many. columns_in_chunks(chunks, body) runs body(chunk) for every chunk.
template <class Chunks>
inline int filter(const float* z, int columns, float top, const FilterRule& rule, const SelectScratch& s,
                  Chunks&& columns_in_chunks) {
  const bool by_rank = rule.top_k > 0 && rule.top_k < columns, by_mass = rule.top_p < 1;
  const float min_weight = min(splat(rule.min_p), splat(1.0f))[0];
  double mass = 0;
  float bound = -kInf;
  constexpr float kSlack = 1e-3f;  // the bounds only save work: what lies above is tested exactly
  if (by_rank) {
    bound = bound_of(s.tops, num_blocks(columns), rule.top_k, s.tops_copy);
  } else {
    if (by_mass) {
      columns_in_chunks(num_chunks(columns), [&](int chunk) {
        s.masses[chunk] = masses_of(z + chunk * kChunk, min(kChunk, columns - chunk * kChunk), top);
      });
      double above[kLevels] = {};
      for (int chunk = 0; chunk < num_chunks(columns); chunk++) {
        mass += s.masses[chunk].all;
        for (int level = 0; level < kLevels; level++) above[level] += s.masses[chunk].above[level];
      }
      // what lies below is less than top_p leaves out: by its number, or by the mass above a level
      bound = top + logf(max(1.0f - rule.top_p, 0.0f) * float(mass / columns)) - kSlack;
      for (int level = kLevels - 1; level >= 0; level--)
        if (above[level] > (double(rule.top_p) + kSlack) * mass)
          bound = max(bound, top - kLevelStep * float(level + 1) - kSlack);
    }
    if (min_weight > 0) bound = max(bound, top + logf(min_weight) - kSlack);
  }
  int n = gather(z, columns, s.tops, bound, s.entries);
  if (by_rank && n > rule.top_k) {
    select_first(s.entries, n, rule.top_k);
    const float last = s.entries[rule.top_k - 1].value;
    int kept = rule.top_k;
    for (int i = kept; i < n; i++)
      if (s.entries[i].value == last) swap(s.entries[i], s.entries[kept++]);
    n = kept;
  }
  set_weights(s.entries, n, top);
  if (by_mass) {
    if (by_rank)
      for (int i = 0; i < n; i++) mass += s.entries[i].weight;
    const int kept = nucleus(s.entries, n, rule.top_p * mass);
    if (kept == 0) select_first(s.entries, n, 1);
    n = max(kept, 1);
  }
  if (min_weight > 0) {
    int kept = 0;
    for (int i = 0; i < n; i++)
      if (s.entries[i].weight >= min_weight) s.entries[kept++] = s.entries[i];
    n = kept;
  }
  return n;
}

}  // namespace
}  // namespace ix::cpu
