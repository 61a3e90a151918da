// Attention of few new tokens a sequence over a kv_bf16 cache: the launcher of `attention` asks here first.
#pragma once
#include "cuda/kernel.h"

namespace ix::cuda {

// Sequences with at most so many tokens in this step are served here. Those with more are skipped: another kernel of
// the same call writes their rows.
constexpr int kDecodeTokens = 8;

// The call is that of `attention`; `bf16_result` says of what type the rows of the result are. `deterministic`: the
// bits of a token's result depend on its own sequence alone, whatever else the step holds. False: another kernel must
// serve these sequences, nothing was launched.
bool decode_attention(ix_stream* stream, const ix_kernel_call* call, bool bf16_result = false,
                      bool deterministic = false);
size_t decode_attention_workspace(const ix_kernel_call* call, bool deterministic = false);

}  // namespace ix::cuda
