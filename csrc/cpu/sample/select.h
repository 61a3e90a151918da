// Choosing a few of many values without sorting them: block maxima bound the k-th largest, the candidates above the
// bound are gathered, and only those are partitioned. The order everywhere: larger value first, lower token among
// equals.
#pragma once
#include "cpu/act/vec_math.h"

namespace ix::cpu {
namespace {

constexpr int kBlock = 64;  // columns that share a maximum

struct Entry {
  float value, weight;
  int32_t token;
};

IX_INLINE bool before(float a, int32_t token_a, float b, int32_t token_b) {
  return a > b || (a == b && token_a < token_b);
}
IX_INLINE bool before(const Entry& a, const Entry& b) { return before(a.value, a.token, b.value, b.token); }
IX_INLINE bool before(float a, float b) { return a > b; }

template <class T>
IX_INLINE void swap(T& a, T& b) {
  const T t = a;
  a = b;
  b = t;
}

// Puts the elements of [first, last) that come before a pivot in front of it; returns where the pivot stands. The pivot
// is taken from a scrambled place, so that no natural order of logits makes the search quadratic.
template <class T>
inline int partition(T* x, int first, int last) {
  const uint32_t scrambled = (uint32_t(first) * 0x9E3779B9u) ^ (uint32_t(last) * 0x85EBCA6Bu);
  swap(x[first + int(scrambled % uint32_t(last - first))], x[last - 1]);
  const T pivot = x[last - 1];
  int at = first;
  for (int i = first; i < last - 1; i++)
    if (before(x[i], pivot)) swap(x[i], x[at++]);
  swap(x[at], x[last - 1]);
  return at;
}

// Brings the first k of n elements to the front, the k-th of them to x[k - 1]; 0 < k <= n. Equal floats are told apart
// by nothing, which would cost time on constant rows: a run of elements equal to the pivot ends the search.
template <class T>
inline void select_first(T* x, int n, int k) {
  int first = 0, last = n;
  while (last - first > 1) {
    const int at = partition(x, first, last);
    if (at == k - 1) return;
    if (at >= k) {
      last = at;
      continue;
    }
    int equal = at + 1;  // gather what equals the pivot behind it
    for (int i = equal; i < last; i++)
      if (!before(x[at], x[i])) swap(x[i], x[equal++]);
    if (k <= equal) return;
    first = equal;
  }
}

// Heap sort: the few that are reported are put in order.
inline void sort(Entry* x, int n) {
  const auto sift = [&](int root, int size) {
    for (int child = 2 * root + 1; child < size; child = 2 * root + 1) {
      if (child + 1 < size && before(x[child], x[child + 1])) child++;  // the root is what comes last
      if (!before(x[root], x[child])) return;
      swap(x[root], x[child]);
      root = child;
    }
  };
  for (int i = n / 2 - 1; i >= 0; i--) sift(i, n);
  for (int i = n - 1; i > 0; i--) {
    swap(x[0], x[i]);
    sift(0, i);
  }
}

IX_INLINE int num_blocks(int columns) { return (columns + kBlock - 1) / kBlock; }

// tops[b] = the largest of block b of x, NaN counted as -infinity
IX_INLINE void block_tops(const float* x, int columns, float* tops) {
  for (int b = 0; b < num_blocks(columns); b++) {
    Vf top = splat(-kInf);
    for_lanes(min(kBlock, columns - b * kBlock), [&](int i, int n) __attribute__((always_inline)) {
      const Vf v = load_part(x + b * kBlock + i, n);
      top = max(n == kLanes ? v : iota() < splat_i(n) ? v : splat(-kInf), top);
    });
    tops[b] = max_lanes(top);
  }
}

// A value that at least k columns reach: the k-th largest block maximum. `scratch` holds as many as `tops`.
inline float bound_of(const float* tops, int blocks, int k, float* scratch) {
  if (k > blocks) return -kInf;
  memcpy(scratch, tops, size_t(blocks) * sizeof(float));
  select_first(scratch, blocks, k);
  return scratch[k - 1];
}

// All columns >= bound (and > -infinity), by token. Returns their number.
inline int gather(const float* x, int columns, const float* tops, float bound, Entry* entries) {
  int n = 0;
  for (int b = 0; b < num_blocks(columns); b++) {
    if (!(tops[b] >= bound) || tops[b] == -kInf) continue;
    for (int i = b * kBlock; i < min(columns, (b + 1) * kBlock); i++)
      if (x[i] >= bound && x[i] > -kInf) entries[n++] = {x[i], 0.0f, i};
  }
  return n;
}

}  // namespace
}  // namespace ix::cpu
