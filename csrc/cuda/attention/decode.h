// Attention of few new tokens a sequence over a kv_bf16 cache: the launcher of `attention` asks here first.
#pragma once
#include "cuda/kernel.h"

namespace ix::cuda {

// The call is that of `attention`. False: another kernel must serve it, nothing was launched.
bool decode_attention(ix_stream* stream, const ix_kernel_call* call);
size_t decode_attention_workspace(const ix_kernel_call* call);

}  // namespace ix::cuda
