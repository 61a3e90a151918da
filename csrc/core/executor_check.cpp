// The executor's check of a step before it is staged: everything that kernels follow without a look.
#include <algorithm>

#include "core/executor.h"

namespace ix {

void Executor::check_commands(const int32_t* commands, size_t count) const {
  const int32_t rows = history_state_ < 0 ? 0 : plan_->states[history_state_].dims[0];
  const int32_t vocabulary = history_state_ < 0 ? 0 : plan_->states[history_state_].dims[1];
  const auto require = [](bool condition) {
    if (!condition) fail("IX_INVALID_ARGUMENT", "a step's command is out of range");
  };
  for (size_t i = 0; i < count;) {
    const int32_t kind = commands[i];
    require(kind >= kTableEntry && kind <= kSwapIn);
    const CommandShape shape = kCommandShapes[kind];
    require(count - i > size_t(shape.fields));
    const int32_t* f = commands + i + 1;
    size_t items = 0;
    if (kind == kTableEntry || kind == kCopyBlock || kind >= kPoisonBlock) {
      require(f[0] >= 0 && f[0] < int32_t(plan_->groups.size()));
      const int64_t blocks = options_.blocks[f[0]], host_slots = options_.host_slots[f[0]];
      if (kind == kTableEntry) {
        const PlanState& table = plan_->states[plan_->groups[f[0]].table_state];
        require(f[1] >= 0 && f[1] < table.dims[0] && f[2] >= 0 && f[2] < table.dims[1] && f[3] >= -1 && f[3] < blocks);
      } else {
        require(f[1] >= 0 && f[1] < (kind == kSwapIn ? host_slots : blocks));
        require(kind == kPoisonBlock || (f[2] >= 0 && f[2] < (kind == kSwapOut ? host_slots : blocks)));
      }
    } else {
      require(f[0] >= 0 && f[0] < rows);
      if (shape.item) {
        require(f[1] >= 0);
        items = size_t(f[1]) * size_t(shape.item);
        require(count - i - 1 - size_t(shape.fields) >= items);
        for (size_t k = 0; k < items; k += size_t(shape.item)) require(f[2 + k] >= 0 && f[2 + k] < vocabulary);
      }
    }
    i += 1 + size_t(shape.fields) + items;
  }
}

// Everything that kernels follow without a look. The block table is moved on first, and back if the step is refused.
void Executor::check(const StepInput& step) {
  for (int d = 0; d < IX_NUM_DIMS; d++)
    if (step.dims[d] > plan_->max_dims[d])
      fail("IX_INVALID_ARGUMENT", "a step of %u exceeds the plan's maximum of %u", step.dims[d], plan_->max_dims[d]);
  check_commands(step.commands, step.num_commands);
  check_inputs(step);
  struct Change {
    uint32_t group;
    size_t entry;
    int32_t block;
  };
  std::vector<Change> changes;
  for (size_t i = 0; i < step.num_commands;) {
    const int32_t kind = step.commands[i], *f = step.commands + i + 1;
    const CommandShape shape = kCommandShapes[kind];
    if (kind == kTableEntry) {
      const size_t entry = size_t(f[1]) * size_t(plan_->states[plan_->groups[f[0]].table_state].dims[1]) + size_t(f[2]);
      changes.push_back({uint32_t(f[0]), entry, tables_[f[0]].entries[entry]});
      set_table_entry(uint32_t(f[0]), entry, f[3]);
    }
    i += 1 + size_t(shape.fields) + (shape.item ? size_t(f[1]) * size_t(shape.item) : 0);
  }
  try {
    for (const Attention& attention : attentions_) check_sequences(step, attention);
  } catch (const Error&) {
    for (size_t i = changes.size(); i-- > 0;) set_table_entry(changes[i].group, changes[i].entry, changes[i].block);
    throw;
  }
}

void Executor::set_table_entry(uint32_t group, size_t entry, int32_t block) {
  BlockTable& table = tables_[group];
  uint32_t& holes = table.holes[entry / size_t(plan_->states[plan_->groups[group].table_state].dims[1])];
  holes += uint32_t(block < 0) - uint32_t(table.entries[entry] < 0);
  table.entries[entry] = block;
}

void Executor::check_inputs(const StepInput& step) const {
  const auto values = [&](int input) {
    return reinterpret_cast<const int32_t*>(step.inputs + plan_->inputs[input].offset);
  };
  const auto in_range = [&](const char* name, int input, uint32_t count, int64_t low, int64_t high) {
    if (input < 0) return;
    const int32_t* v = values(input);
    for (uint32_t i = 0; i < count; i++)
      if (v[i] < low || v[i] >= high) fail("IX_INVALID_ARGUMENT", "%s %d of a step is out of range", name, v[i]);
  };
  const uint32_t tokens = step.dims[IX_DIM_T], samples = step.dims[IX_DIM_S];
  for (size_t g = 0; g < plan_->groups.size(); g++)
    in_range("slot", int(plan_->groups[g].slots_input), tokens, -1,
             int64_t(options_.blocks[g]) * plan_->groups[g].block_tokens);
  if (history_state_ < 0) return;
  const int32_t* history = plan_->states[history_state_].dims;
  in_range("token", tokens_input_, tokens, -int64_t(history[0]), history[1]);
  in_range("row of a sample", sample_row_input_, samples, -1, history[0]);
  in_range("row of a history", row_state_input_, samples, -1, history[0]);
  in_range("given token", target_input_, samples, -1, history[1]);
}

void Executor::check_sequences(const StepInput& step, const Attention& attention) const {
  const auto values = [&](uint32_t input) {
    return reinterpret_cast<const int32_t*>(step.inputs + plan_->inputs[input].offset);
  };
  const int32_t *start = values(attention.start), *context = values(attention.context), *row = values(attention.row);
  const auto require = [](bool condition, uint32_t r, const char* what) {
    if (!condition) fail("IX_INVALID_ARGUMENT", "sequence %u of a step: %s", r, what);
  };
  const BlockTable& table = tables_[attention.group];
  const int32_t* dims = plan_->states[plan_->groups[attention.group].table_state].dims;
  const int64_t block_tokens = plan_->groups[attention.group].block_tokens;
  const uint32_t count = step.dims[IX_DIM_R];
  require(count == 0 || start[0] == 0, 0, "its tokens do not begin the step");
  for (uint32_t r = 0; r < count; r++) {
    const int64_t added = int64_t(start[r + 1]) - start[r];
    require(added >= 0 && start[r + 1] <= int64_t(step.dims[IX_DIM_T]), r, "its tokens lie outside of the step");
    require(context[r] >= added && context[r] <= dims[1] * block_tokens, r, "its context does not fit");
    require(row[r] >= 0 && row[r] < dims[0], r, "its row is out of range");
    if (table.holes[row[r]] == 0 || added == 0) continue;
    const int64_t seen = attention.window > 0 ? std::max<int64_t>(0, context[r] - added - attention.window + 1) : 0;
    for (int64_t column = seen / block_tokens; column * block_tokens < context[r]; column++)
      require(table.entries[size_t(int64_t(row[r]) * dims[1] + column)] >= 0, r, "a block of its context is missing");
  }
}

}  // namespace ix
