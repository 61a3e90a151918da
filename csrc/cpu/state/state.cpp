// What the executor keeps per row between steps, see csrc/core/row_state.h: block tables, histories, the last token
// drawn.
#include "cpu/elementwise/rows.h"

namespace {
using namespace ix::cpu;

void write_table(ix_stream*, const ix_kernel_call* call) {
  const ix_tensor &table = call->operands[0], &edits = call->operands[1];
  for (int e = 0; e < edits.dims[0]; e++) {
    const int32_t* edit = row_i(edits, e);
    row_i(table, edit[0])[edit[1]] = edit[2];
  }
}

void clear_history(ix_stream*, const ix_kernel_call* call) {
  const ix_tensor &history = call->operands[0], &rows = call->operands[1];
  for (int e = 0; e < rows.dims[0]; e++) memset(row_i(history, ints(rows)[e]), 0, size_t(history.dims[1]) * 4);
}

void count_history(ix_stream*, const ix_kernel_call* call) {
  const ix_tensor &history = call->operands[0], &edits = call->operands[1];
  for (int e = 0; e < edits.dims[0]; e++) {
    const int32_t* edit = row_i(edits, e);
    uint32_t& count = reinterpret_cast<uint32_t*>(row_i(history, edit[0]))[edit[1]];
    if (edit[2] > 0)
      count++;
    else
      count |= 0x80000000u;
  }
}

void feed_tokens(ix_stream*, const ix_kernel_call* call) {
  const ix_tensor &tokens = call->operands[0], &last = call->operands[1];
  for (int t = 0; t < tokens.dims[0]; t++) {
    int32_t& token = ints(tokens)[t];
    if (token >= 0) continue;
    const int64_t from = -1 - int64_t(token);
    token = from < last.dims[0] ? ints(last)[from] : 0;
  }
}

void keep_tokens(ix_stream*, const ix_kernel_call* call) {
  const ix_tensor &token = call->operands[0], &rows = call->operands[1], &last = call->operands[2];
  for (int s = 0; s < rows.dims[0]; s++) {
    const int32_t to = ints(rows)[s];
    if (to >= 0 && to < last.dims[0]) ints(last)[to] = *row_i(token, s);
  }
}
}  // namespace

IX_KERNEL(write_table, "write_table(table: i32[P,C], edits: i32[E,3])", "for=executor", write_table, nullptr)
IX_KERNEL(clear_history, "clear_history(history: u32[H,V], rows: i32[E])", "for=executor", clear_history, nullptr)
IX_KERNEL(count_history, "count_history(history: u32[H,V], edits: i32[E,3])", "for=executor", count_history, nullptr)
IX_KERNEL(feed_tokens, "feed_tokens(tokens: i32[T], last: i32[P])", "for=executor", feed_tokens, nullptr)
IX_KERNEL(keep_tokens, "keep_tokens(token: i32[S,1], rows: i32[S], last: i32[P])", "for=executor", keep_tokens, nullptr)
