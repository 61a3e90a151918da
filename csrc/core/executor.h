// Replays a plan, step by step, on a thread of its own. submit() stages a step's inputs and returns at once; wait()
// blocks until that step is done. Two steps may be under way. An asynchronous device gets the second one while it runs
// the first, and steps of one token a sequence, which come again and again, are captured as graphs.
#pragma once
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/backends.h"
#include "core/error.h"
#include "core/plan.h"
#include "core/row_state.h"
#include "core/weights.h"

namespace ix {

struct StepInput {
  uint32_t dims[IX_NUM_DIMS];  // T, R, S
  const uint8_t* inputs;       // as large as the plan's input buffer
  const int32_t* commands;     // of row_state.h
  size_t num_commands;         // in int32
  uint32_t wanted;             // bit i: output i of the plan is kept for wait()
};

struct ExecutorOptions {
  std::vector<uint32_t> blocks;           // per cache group
  bool checked = false;                   // look for NaN after each op, and poison results before it
  std::vector<uint32_t> host_slots = {};  // per cache group, for blocks of preempted sequences; empty: none
};

class Executor {
 public:
  Executor(std::shared_ptr<Device> device, std::shared_ptr<const Plan> plan, std::shared_ptr<const WeightSet> weights,
           const ExecutorOptions& options);
  ~Executor();  // stops between two ops of the running step

  // Throws IX_INVALID_ARGUMENT when dimensions, commands or indices in the inputs are out of range or when two steps
  // are under way already.
  uint64_t submit(const StepInput& step);
  // Blocks. Throws the step's error (IX_DEVICE, or IX_DISPOSED after close()).
  void wait(uint64_t ticket);
  // Of a step that has been waited for: rows x columns of output i, dense.
  struct Output {
    const void* data;
    uint32_t rows, columns;
  };
  Output output(uint64_t ticket, uint32_t index) const;
  void close();

  const Plan& plan() const { return *plan_; }
  uint64_t memory_bytes() const;
  // Keeps the results of one op (counted as in trace()) of the steps from now on; -1: of none. For finding differences.
  struct Probe {
    uint32_t rows, columns;
    std::vector<uint8_t> data;
  };
  void set_probe(int op) { probe_op_ = op; }
  const std::vector<Probe>& probed() const { return probed_; }  // of the last step that has been waited for
  // Nanoseconds per op since the start, forward's ops and then sample's; empty unless tracing is on.
  void set_trace(bool on) { tracing_ = on; }
  std::vector<uint64_t> trace() const;
  // The op that runs now or ran last, for error reports.
  std::string position() const;

 private:
  struct Op {
    const ix_kernel* kernel;
    std::vector<ix_tensor> operands;
    std::vector<std::pair<uint16_t, uint8_t>> symbolic;  // operand, IX_DIM_*: its dims[0] is set for each step
    std::vector<ix_attr> attrs;
    const PlanStep* step;
  };
  // Which inputs tell an attention op about its sequences, and the cache group whose blocks it follows.
  struct Attention {
    uint32_t start, context, row, group;
    int64_t window;
    bool operator==(const Attention&) const = default;
  };
  // The caller's copy of a group's block table, ahead of the device's by the steps under way.
  struct BlockTable {
    std::vector<int32_t> entries;
    std::vector<uint32_t> holes;  // by row: entries without a block
  };
  struct Staged {
    uint64_t ticket = 0;
    uint32_t dims[IX_NUM_DIMS] = {};
    HostMemory inputs;
    std::vector<int32_t> commands;
    bool feeds = false;  // some token is what a row drew last
    uint32_t wanted = 0;
    std::vector<HostMemory> outputs;
    Mark done;  // on an asynchronous device
    std::optional<Error> error;
  };

  ix_tensor resolve(const PlanOperand& operand) const;
  Op bind(const PlanStep& step, size_t* workspace_bytes);
  void require_memory() const;
  void check(const StepInput& step);
  void check_inputs(const StepInput& step) const;
  void check_sequences(const StepInput& step, const Attention& attention) const;
  void check_commands(const int32_t* commands, size_t count) const;
  void set_table_entry(uint32_t group, size_t entry, int32_t block);
  void loop();
  void run(Staged& step);
  void run_programs(const Staged& step);
  bool replay(const Staged& step);
  template <class F>
  void for_filled(const uint32_t* dims, uint64_t num_biases, F&& f) const;
  uint64_t stage_bias(Staged& step) const;
  void upload_inputs(const Staged& step, uint64_t num_biases) const;
  void run_program(int program, const Staged& step);
  void poison_results(const Op& op) const;
  void check_results(const Op& op) const;
  void keep_probe(const Op& op);
  Probe read_rows(const ix_tensor& tensor, Type type) const;
  void keep_outputs(Staged& step);
  void synchronize() const;
  // Where input `index` of a set begins.
  template <class T = int32_t>
  T* place(const HostMemory& set, int index) const {
    return reinterpret_cast<T*>(set.data() + plan_->inputs[index].offset);
  }

  std::shared_ptr<Device> device_;
  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<const WeightSet> weights_;
  ExecutorOptions options_;
  DeviceMemory arena_, inputs_, constants_, workspace_;
  std::vector<DeviceMemory> states_, caches_;
  std::vector<char*> constant_data_;
  std::vector<Op> programs_[kNumPrograms];
  std::vector<Attention> attentions_;  // all different ones
  std::vector<BlockTable> tables_;     // by group
  std::optional<RowState> rows_;
  int tokens_input_ = -1, sample_row_input_ = -1, bias_start_input_ = -1, bias_token_input_ = -1,
      bias_value_input_ = -1, row_state_input_ = -1, target_input_ = -1, history_state_ = -1, token_output_ = -1;

  std::atomic<bool> stop_{false};
  std::atomic<bool> tracing_{false};
  std::atomic<int> probe_op_{-1};
  std::vector<Probe> probed_;
  std::atomic<const Op*> current_{nullptr};
  std::vector<std::atomic<uint64_t>> trace_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Staged staged_[2];
  // A step is launched on an asynchronous device before it completes, else at the same time.
  uint64_t submitted_ = 0, launched_ = 0, completed_ = 0;
  // By the number of sequences: nothing, then (the second time) what was captured, which may have failed.
  std::map<uint32_t, std::optional<Graph>> graphs_;
  std::thread thread_;
};

}  // namespace ix
