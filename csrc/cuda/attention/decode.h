// Attention of few new tokens a sequence over a kv_bf16 cache: the launcher of `attention` asks here first.
#pragma once
#include "cuda/kernel.h"

namespace ix::cuda {

// Zeros that a stream's kernels count in, one kernel after the other, and leave as zeros.
constexpr int kCounters = 1 << 16;

// The call is that of `attention`. False: another kernel must serve it, nothing was launched.
bool decode_attention(ix_stream* stream, const ix_kernel_call* call, uint32_t* counters);
size_t decode_attention_workspace(const ix_kernel_call* call);

}  // namespace ix::cuda
