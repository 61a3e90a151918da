// One tile of attention: a few query rows that share a KV head against kSplit positions, and how the results of several
// splits combine. Splits lie at absolute positions and are merged in order, so a row's bits depend on nothing around
// it.
#pragma once
#include <cmath>

#include "cpu/act/vec_math.h"
#include "cpu/attention/panel.h"

namespace ix::cpu {
namespace {

// Unnormalised output of some rows: `top` is the largest score, `sum` and `out` are relative to exp(top).
struct TileState {
  alignas(64) float out[kTileRows][kLd];
  float top[kTileRows], sum[kTileRows];

  void clear(int rows, int width) {
    for (int t = 0; t < rows; t++) {
      top[t] = -kInf;
      sum[t] = 0;
      memset(out[t], 0, size_t(width) * sizeof(float));
    }
  }
};

struct TileScratch {
  alignas(64) Word query[kTileRows][kLd];  // f32, or pairs of bf16 where a product takes them
  alignas(64) float scores[kTileRows][kLd];
  TileState part, total;
};

struct ScoreRule {
  float scale, softcap;
};

// What a tile looks at: row t sees the positions first[t] .. last[t], all of them below `context`.
template <int kPair>
struct TileView {
  const KvCache<kPair>& cache;
  const int32_t* blocks;  // this sequence's row of the block table
  int kv_head, rows, context;
  int first[kTileRows], last[kTileRows];
};

#if defined(__AVX512BF16__)
constexpr bool kBf16Products = true;
#else
constexpr bool kBf16Products = false;
#endif

template <int kPair>
IX_INLINE void load_query(Word* to, const float* q, int width) {
  if constexpr (kPair == 2 && kBf16Products) {
    to_bf16_row(q, to, width);
  } else {
    memcpy(to, q, size_t(width) * sizeof(float));
  }
}

// Scores of positions base + [from, to) become probabilities relative to their maximum, in place (as the next product
// wants them); what the row does not see becomes 0.
template <int kPair>
IX_INLINE void softmax_row(float* scores, int from, int to, int first, int last, ScoreRule rule, float* top,
                           float* sum) {
  Vf most = splat(-kInf);
  for (int i = from; i < to; i += kLanes) {
    const Vi at = iota() + splat_i(i);
    Vf s = load(scores + i) * splat(rule.scale);
    if (rule.softcap > 0) s = tanh(s / splat(rule.softcap)) * splat(rule.softcap);
    s = (at >= splat_i(first)) & (at <= splat_i(last)) ? s : splat(-kInf);
    most = max(s, most);
    store(scores + i, s);
  }
  *top = max_lanes(most);
  const Vf shift = splat(*top > -kInf ? *top : 0.0f);
  Vf total{};
  for (int i = from; i < to; i += kLanes) {
    const Vf e = exp(load(scores + i) - shift);
    total = total + e;
    if constexpr (kPair == 2 && kBf16Products) {
#if defined(__AVX512BF16__)
      const __m256bh half = _mm512_cvtneps_pbh((__m512)e);
      memcpy(reinterpret_cast<char*>(scores) + 2 * i, &half, sizeof half);
#endif
    } else {
      store(scores + i, e);
    }
  }
  *sum = sum_lanes(total);
}

// The rows of `view` against the positions of one split.
template <int kPair>
void attend_split(const TileView<kPair>& view, int split, ScoreRule rule, TileScratch& s, TileState& part) {
  const KvCache<kPair>& cache = view.cache;
  const int tokens = cache.tokens, width = cache.width, base = split * kSplit, head = view.kv_head;
  const PanelSet panels = pick_panels<kPair>(view.rows);
  int first = view.first[0], last = view.last[0];
  for (int t = 1; t < view.rows; t++) first = min(first, view.first[t]), last = max(last, view.last[t]);
  const int begin = max(base, first) / tokens, end = min(base + kSplit - 1, last) / tokens + 1;  // blocks
  const Word* first_v = cache.v(view.blocks[begin], head);

  PanelArgs args{{}, {}, {}, tokens, s.query[0], width / kPair, tokens, false};
  const int per_block = max(1, tokens / kPanelLanes), num_panels = (end - begin) * per_block;
  const auto keys = [&](int i) {
    return cache.k(view.blocks[begin + i / per_block], head) + i % per_block * kPanelLanes;
  };
  const auto place_keys = [&](int i, const Word** w, const Word** next, float** y) {
    *w = keys(i);
    *next = i + kMaxPanels < num_panels ? keys(i + kMaxPanels) : first_v;
    *y = s.scores[0] + begin * tokens - base + i / per_block * tokens + i % per_block * kPanelLanes;
  };
  if (tokens >= kPanelLanes) {
    panels.run(args, num_panels * kPanelLanes, place_keys);
  } else {
    for (int i = 0; i < num_panels; i++) {
      place_keys(i, &args.w[0], &args.next[0], &args.y[0]);
      panels.partial(args);
    }
  }

  const int from = (begin * tokens - base) / kLanes * kLanes, to = end * tokens - base;
  for (int t = 0; t < view.rows; t++)
    softmax_row<kPair>(s.scores[t], from, to, view.first[t] - base, view.last[t] - base, rule, &part.top[t],
                       &part.sum[t]);

  constexpr int kWordsPerPair = kPair == 2 && !kBf16Products ? 2 : 1;  // of probabilities, for one word of V
  for (int b = begin; b < end; b++) {
    const Word* values = cache.v(view.blocks[b], head);
    const Word* next_values = b + 1 < end ? cache.v(view.blocks[b + 1], head) : values;
    const Word* probabilities =
        reinterpret_cast<const Word*>(s.scores[0]) + (b * tokens - base) / kPair * kWordsPerPair;
    // slots past the context hold anything, NaN included, and 0 * NaN would spread
    const int valid = min(tokens, view.context - b * tokens);
    const auto place_values = [&](int i, const Word** w, const Word** next, float** y) {
      *w = values + i * kPanelLanes;
      *next = next_values + i * kPanelLanes;
      *y = part.out[0] + i * kPanelLanes;
    };
    PanelArgs product{{}, {}, {}, width, probabilities, valid / kPair, 0, b > begin};
    panels.run(product, width, place_values);
    if (valid % kPair) {  // the last token's partner in its word is such a slot
      alignas(64) Word half[kMaxHeadWidth];
      for (int d = 0; d < width; d++) half[d] = values[int64_t(valid / 2) * width + d] & 0xFFFF;
      values = next_values = half;
      product.a = probabilities + valid / 2 * kWordsPerPair;
      product.steps = 1;
      product.more = true;
      panels.run(product, width, place_values);
    }
  }
}

IX_INLINE void merge(TileState& total, const TileState& part, int rows, int width) {
  for (int t = 0; t < rows; t++) {
    const float top = max(part.top[t], total.top[t]);
    if (top == -kInf) continue;
    const float keep = expf(total.top[t] - top), add = expf(part.top[t] - top);
    total.top[t] = top;
    total.sum[t] = total.sum[t] * keep + part.sum[t] * add;
    float* out = total.out[t];
    const float* more = part.out[t];
    for_lanes(width, [&](int i, int n) __attribute__((always_inline)) {
      store_part(out + i, load_part(out + i, n) * splat(keep) + load_part(more + i, n) * splat(add), n);
    });
  }
}

// Row t of a finished total; `sink` (if any) is one more score, of a position without a value.
IX_INLINE void finish_row(const TileState& total, int t, const float* sink, float* y, int width) {
  float top = total.top[t], sum = total.sum[t], factor = 1;
  if (sink) {
    top = max(*sink, top);
    factor = expf(total.top[t] - top);
    sum = sum * factor + expf(*sink - top);
  }
  const Vf inverse = splat(sum > 0 || sum != sum ? factor / sum : 0.0f);
  for_lanes(width, [&](int i, int n) __attribute__((always_inline)) {
    store_part(y + i, load_part(total.out[t] + i, n) * inverse, n);
  });
}

}  // namespace
}  // namespace ix::cpu
