// sample: from logits to tokens and log-probabilities, see "The sample program" in docs/plan.md. A cluster of blocks
// for each row, whatever else the step holds: each block keeps a slice of the row in shared memory, so that the logits
// are read once. What may be drawn is mostly a short list, which the first block of the row finishes by itself; a long
// one stays where it is. Where there are no clusters, one block works on a copy in memory. NaN counts as -infinity; a
// row without any finite logit gives token 0.
#include "cuda/ptx/launch.h"
#include "cuda/sample/row.h"

namespace {
using namespace ix::cuda;

constexpr int kCluster = 8;
constexpr int kMaxSlice = (224 * 1024 - kBase) / 4 / 4 * 4;

template <int kBlocks>
__global__ void __launch_bounds__(kThreads, 3) sample_kernel(Operands o) {
  extern __shared__ __align__(16) char shared[];
  __shared__ uint32_t listed[2];
  if (threadIdx.x < 2) listed[threadIdx.x] = 0;
  allow_next_kernel();
  Row<kBlocks> row(o, shared, listed);  // the row's rules are older than the kernel before this one
  wait_for_earlier_kernels();
  row.run();
}

// The slice of a block if a row is shared by a cluster, or 0.
int cluster_slice(int columns) {
  const int slice = (divide_up(columns, kCluster) + 3) / 4 * 4;
  return current_gpu().capability >= 90 && slice <= kMaxSlice ? slice : 0;
}
size_t workspace(const ix_kernel_call* call, int) {
  const int32_t* dims = call->operands[0].dims;
  return size_t(dims[0]) * size_t((dims[1] + 3) / 4 * 4) * sizeof(float);
}

void launch(ix_stream* stream, const ix_kernel_call* call) {
  const ix_tensor* t = call->operands;
  const auto ints = [&](int i) { return static_cast<const int32_t*>(t[i].data); };
  const auto floats = [&](int i) { return static_cast<const float*>(t[i].data); };
  Operands o{Floats(t[0]),
             ints(1),
             ints(2),
             Rows<uint32_t>(t[3]),
             ints(4),
             ints(5),
             floats(6),
             ints(7),
             floats(8),
             floats(9),
             floats(10),
             floats(11),
             floats(12),
             ints(13),
             ints(14),
             ints(15),
             floats(16),
             Rows<uint32_t>(t[17]),
             Rows<uint32_t>(t[18]),
             ints(19),
             Ints(t[20]),
             Floats(t[21]),
             Ints(t[22]),
             Floats(t[23]),
             t[0].dims[1],
             t[22].dims[1],
             0,
             static_cast<float*>(call->workspace)};
  const int rows = t[0].dims[0];
  if (rows <= 0) return;
  const bool whole_lines = reinterpret_cast<uintptr_t>(t[0].data) % 16 == 0 && t[0].stride % 4 == 0;
  o.slice = whole_lines ? cluster_slice(o.columns) : 0;
  if (o.slice > 0)
    return launch_kernel<sample_kernel<kCluster>>(stream, current_gpu(), rows * kCluster, kThreads,
                                                  kBase + o.slice * sizeof(float), kCluster, o);
  o.slice = (o.columns + 3) / 4 * 4;
  launch_kernel<sample_kernel<1>>(stream, current_gpu(), rows, kThreads, kBase, 1, o);
}
}  // namespace

#define IX_SAMPLE                                                                                                      \
  "sample(logits: f32[S,V], row_state: i32[S], position: i32[S], seed: u32[S,2], sample_index: i32[S], target: "       \
  "i32[S], temperature: "                                                                                              \
  "f32[S], top_k: i32[S], top_p: f32[S], min_p: f32[S], repetition: f32[S], presence: f32[S], frequency: f32[S], "     \
  "num_logprobs: i32[S], "                                                                                             \
  "bias_start: i32[S], bias_token: i32[B], bias_value: f32[B], history: u32[H,V], mask?: u32[M,W], mask_row: i32[S], " \
  "top: i32) -> i32[S,1], "                                                                                            \
  "f32[S,1], i32[S,top], f32[S,top]"
IX_KERNEL(sample, IX_SAMPLE, "", launch, workspace)
