// What belongs to a row (a running sequence) between steps: its line of the block tables, its token history, the last
// token it drew (all on the device, changed by kernels that every backend has), and its logit biases (on the host).
// Also what steps do to whole blocks, and the host's slots for those of preempted sequences.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/backends.h"
#include "core/plan.h"

namespace ix {

// What a step changes before it runs; a flat list of int32: kind, then the fields named here.
enum Command : int32_t {
  kTableEntry = 1,     // group, row, column, block
  kCopyBlock = 2,      // group, source, destination
  kClearHistory = 3,   // row
  kPromptHistory = 4,  // row, count, tokens…
  kAnswerHistory = 5,  // row, count, tokens…
  kLogitBias = 6,      // row, count, (token, f32 bits)…; replaces the row's list
  kPoisonBlock = 7,    // group, block: filled with NaN
  kSwapOut = 8,        // group, block, host slot
  kSwapIn = 9,         // group, host slot, block
};

// Fields of a command behind its kind; commands with a list say how long each item is.
struct CommandShape {
  int fields;
  int item;
};
inline constexpr CommandShape kCommandShapes[] = {{0, 0}, {4, 0}, {3, 0}, {1, 0}, {2, 1},
                                                  {2, 1}, {2, 2}, {2, 0}, {3, 0}, {3, 0}};

class RowState {
 public:
  using Bias = std::pair<int32_t, float>;

  // `states` and `caches` are the plan's, on the device; they outlive this. `host_slots`: per cache group.
  RowState(std::shared_ptr<Device> device, const Plan& plan, const std::vector<DeviceMemory>& states,
           const std::vector<DeviceMemory>& caches, const std::vector<uint32_t>& host_slots);

  // Launches what checked commands ask for. What was launched two calls ago must be done.
  void apply(const std::vector<int32_t>& commands);
  // A negative token stands for the last one that row -1 - token drew: it never left the device.
  void feed_tokens(int32_t* tokens, uint32_t count);
  // `tokens` i32[count,1] were drawn for `rows` (-1: for none).
  void keep_tokens(const ix_tensor& tokens, int32_t* rows, uint32_t count);
  // nullptr: none
  const std::vector<Bias>* biases(int32_t row) const;

 private:
  void launch(const ix_kernel* kernel, std::initializer_list<ix_tensor> operands) const;
  ix_tensor state(uint32_t index) const;

  std::shared_ptr<Device> device_;
  const Plan& plan_;
  const std::vector<DeviceMemory>& states_;
  const std::vector<DeviceMemory>& caches_;
  std::vector<HostMemory> host_slots_;  // by group
  const ix_kernel *write_table_, *clear_history_, *count_history_, *feed_tokens_, *keep_tokens_;
  int history_ = -1;
  DeviceMemory last_;           // i32 by row
  HostMemory staged_edits_[2];  // of this call and the one before, whose copy may still be under way
  size_t calls_ = 0;
  DeviceMemory edits_;
  std::vector<std::vector<int32_t>>
      tables_;  // copies of the block tables, so that of several entries for a place the last one counts
  std::vector<std::vector<int32_t>> table_edits_;
  std::vector<int32_t> clears_, counts_;
  std::unordered_map<int32_t, std::vector<Bias>> bias_;
};

}  // namespace ix
