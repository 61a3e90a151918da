// What happens to raw logits before temperature: bias, mask, penalties, see "The sample program" in docs/plan.md.
#pragma once
#include "cpu/act/lanes.h"

namespace ix::cpu {
namespace {

struct Adjustment {
  const int32_t* bias_token;
  const float* bias_value;
  int num_bias;
  const uint32_t* mask;     // bit t % 32 of word t / 32 set: token t is allowed; NULL: all are
  const uint32_t* history;  // one word a token; NULL: no penalties
  float repetition, presence, frequency;

  bool active() const { return num_bias > 0 || mask || history; }
};

// y = columns first .. first + count - 1 of the row x, adjusted; `first` is a multiple of 32
inline void adjust(const Adjustment& rule, const float* x, float* y, int first, int count) {
  memcpy(y, x + first, size_t(count) * sizeof(float));
  for (int i = 0; i < rule.num_bias; i++) {
    const int64_t at = int64_t(rule.bias_token[i]) - first;
    if (at >= 0 && at < count) y[at] += rule.bias_value[i];
  }
  if (rule.mask)
    for (int i = 0; i < count; i++) y[i] = rule.mask[(first + i) / 32] >> (i % 32) & 1 ? y[i] : -__builtin_inff();
  if (rule.history)
    for (int i = 0; i < count; i++) {
      const uint32_t seen = rule.history[first + i];
      const float times = float(int32_t(seen & 0x7FFFFFFFu));
      const float v = y[i], repeated = v < 0 ? v * rule.repetition : v / rule.repetition;
      const float penalised = seen ? repeated : v;
      y[i] = penalised - rule.frequency * times - (times > 0 ? rule.presence : 0.0f);
    }
}

}  // namespace
}  // namespace ix::cpu
