// What the executor keeps per row between steps, see csrc/core/row_state.h: block tables, histories, the last token
// drawn. These kernels do not let the next one start early: kernels of a step read what they leave without waiting for
// more than the kernels right before them.
#include "cuda/kernel.h"

namespace {
using namespace ix::cuda;

template <class F>
__global__ void state_kernel(int columns, int blocks_per_row, F f) {
  wait_for_earlier_kernels();
  const int row = blockIdx.x / blocks_per_row, c = (blockIdx.x - row * blocks_per_row) * blockDim.x + threadIdx.x;
  if (c < columns) f(row, c);
  __threadfence();
}

// f(row, column) on the device for every element
template <class F>
void change(ix_stream* stream, int rows, int columns, F f) {
  if (rows <= 0 || columns <= 0) return;
  constexpr int kThreads = 128;
  const int blocks = divide_up(columns, kThreads);
  launch_kernel<state_kernel<F>>(stream, current_gpu(), rows * blocks, kThreads, 0, 1, columns, blocks, f);
}

void write_table(ix_stream* stream, const ix_kernel_call* call) {
  const Ints table(call->operands[0]), edits(call->operands[1]);
  change(stream, 1, call->operands[1].dims[0],
         [=] __device__(int, int e) { table[edits(e, 0)][edits(e, 1)] = edits(e, 2); });
}
void clear_history(ix_stream* stream, const ix_kernel_call* call) {
  const Ints history(call->operands[0]);
  const int32_t* rows = static_cast<const int32_t*>(call->operands[1].data);
  change(stream, call->operands[1].dims[0], call->operands[0].dims[1],
         [=] __device__(int r, int c) { history[__ldcg(rows + r)][c] = 0; });
}
void count_history(ix_stream* stream, const ix_kernel_call* call) {
  const Rows<uint32_t> history(call->operands[0]);
  const Ints edits(call->operands[1]);
  change(stream, 1, call->operands[1].dims[0], [=] __device__(int, int e) {
    uint32_t* count = history[edits(e, 0)] + edits(e, 1);
    if (edits(e, 2) > 0)
      atomicAdd(count, 1u);
    else
      atomicOr(count, 0x80000000u);
  });
}
void feed_tokens(ix_stream* stream, const ix_kernel_call* call) {
  int32_t* tokens = static_cast<int32_t*>(call->operands[0].data);
  const int32_t* last = static_cast<const int32_t*>(call->operands[1].data);
  const int rows = call->operands[1].dims[0];
  change(stream, 1, call->operands[0].dims[0], [=] __device__(int, int t) {
    const int64_t from = -1 - int64_t(__ldcg(tokens + t));
    if (from >= 0) tokens[t] = from < rows ? __ldcg(last + from) : 0;
  });
}
void keep_tokens(ix_stream* stream, const ix_kernel_call* call) {
  const Ints token(call->operands[0]);
  const int32_t* rows = static_cast<const int32_t*>(call->operands[1].data);
  int32_t* last = static_cast<int32_t*>(call->operands[2].data);
  const int num_rows = call->operands[2].dims[0];
  change(stream, 1, call->operands[1].dims[0], [=] __device__(int, int s) {
    const int row = __ldcg(rows + s);
    if (row >= 0 && row < num_rows) last[row] = token(s, 0);
  });
}
}  // namespace

IX_KERNEL(write_table, "write_table(table: i32[P,C], edits: i32[E,3])", "for=executor", write_table, nullptr)
IX_KERNEL(clear_history, "clear_history(history: u32[H,V], rows: i32[E])", "for=executor", clear_history, nullptr)
IX_KERNEL(count_history, "count_history(history: u32[H,V], edits: i32[E,3])", "for=executor", count_history, nullptr)
IX_KERNEL(feed_tokens, "feed_tokens(tokens: i32[T], last: i32[P])", "for=executor", feed_tokens, nullptr)
IX_KERNEL(keep_tokens, "keep_tokens(token: i32[S,1], rows: i32[S], last: i32[P])", "for=executor", keep_tokens, nullptr)
