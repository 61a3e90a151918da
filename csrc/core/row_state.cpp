#include "core/row_state.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "core/error.h"

namespace ix {
namespace {

ix_tensor table(void* data, int32_t rows, int32_t columns) { return {data, 2, {rows, columns}, columns}; }
ix_tensor list(void* data, int32_t count) { return {data, 1, {count}, 1}; }

const ix_kernel* find(const Device& device, const char* signature) {
  const ix_kernel* kernel = device.find_kernel(signature, "for=executor");
  if (!kernel) fail("IX_NO_KERNEL", "the %s backend has no kernel %s", device.backend().name, signature);
  return kernel;
}

}  // namespace

RowState::RowState(std::shared_ptr<Device> device, const Plan& plan, const std::vector<DeviceMemory>& states,
                   const std::vector<DeviceMemory>& caches, const std::vector<uint32_t>& host_slots)
    : device_(std::move(device)),
      plan_(plan),
      states_(states),
      caches_(caches),
      write_table_(find(*device_, "write_table(table: i32[P,C], edits: i32[E,3])")),
      clear_history_(find(*device_, "clear_history(history: u32[H,V], rows: i32[E])")),
      count_history_(find(*device_, "count_history(history: u32[H,V], edits: i32[E,3])")),
      feed_tokens_(find(*device_, "feed_tokens(tokens: i32[T], last: i32[P])")),
      keep_tokens_(find(*device_, "keep_tokens(token: i32[S,1], rows: i32[S], last: i32[P])")),
      history_(plan.find_state("history")) {
  size_t rows = plan.max_dims[IX_DIM_R];
  for (const PlanState& s : plan.states) rows = std::max(rows, size_t(s.dims[0]));
  last_ = DeviceMemory(device_, rows * 4);
  for (size_t g = 0; g < plan.groups.size(); g++) {
    tables_.emplace_back(plan.states[plan.groups[g].table_state].bytes / 4);
    host_slots_.emplace_back(device_, size_t(plan.groups[g].block_bytes) * host_slots[g]);
  }
  table_edits_.resize(plan.groups.size());
}

ix_tensor RowState::state(uint32_t index) const {
  return table(states_[index].data(), plan_.states[index].dims[0], plan_.states[index].dims[1]);
}

void RowState::launch(const ix_kernel* kernel, std::initializer_list<ix_tensor> operands) const {
  const ix_kernel_call call{operands.begin(), nullptr, nullptr};
  kernel->launch(device_->stream(), &call);
}

void RowState::apply(const std::vector<int32_t>& commands) {
  clears_.clear();
  counts_.clear();
  for (auto& edits : table_edits_) edits.clear();
  const auto count = [&](const int32_t* f, int32_t what) {
    for (int32_t k = 0; k < f[1]; k++) counts_.insert(counts_.end(), {f[0], f[2 + k], what});
  };
  const auto drop_counts = [&](int32_t row) {
    size_t kept = 0;
    for (size_t k = 0; k < counts_.size(); k += 3)
      if (counts_[k] != row)
        std::copy_n(counts_.begin() + std::ptrdiff_t(k), 3, counts_.begin() + std::ptrdiff_t(kept)), kept += 3;
    counts_.resize(kept);
  };
  const auto block = [&](int32_t group, int32_t index) {
    return caches_[group].data() + plan_.groups[group].block_bytes * size_t(index);
  };
  const auto host_slot = [&](int32_t group, int32_t index) {
    return host_slots_[group].data() + plan_.groups[group].block_bytes * size_t(index);
  };
  for (size_t i = 0; i < commands.size();) {
    const int32_t kind = commands[i], *f = commands.data() + i + 1;
    const CommandShape shape = kCommandShapes[kind];
    switch (kind) {
      case kTableEntry:
        table_edits_[f[0]].insert(table_edits_[f[0]].end(), {f[1], f[2], 0});
        tables_[f[0]][size_t(f[1]) * size_t(plan_.states[plan_.groups[f[0]].table_state].dims[1]) + size_t(f[2])] =
            f[3];
        break;
      case kCopyBlock:
        if (f[1] != f[2]) device_->copy(block(f[0], f[2]), block(f[0], f[1]), plan_.groups[f[0]].block_bytes);
        break;
      case kSwapOut:
        device_->copy(host_slot(f[0], f[2]), block(f[0], f[1]), plan_.groups[f[0]].block_bytes);
        break;
      case kSwapIn:
        device_->copy(block(f[0], f[2]), host_slot(f[0], f[1]), plan_.groups[f[0]].block_bytes);
        break;
      case kPoisonBlock: {
        const size_t bytes = plan_.groups[f[0]].block_bytes;
        device_->fill_rows(block(f[0], f[1]), bytes, 0xff, bytes, 1);
        break;
      }
      case kClearHistory:
        bias_.erase(f[0]);
        clears_.push_back(f[0]);
        drop_counts(f[0]);  // what is cleared is cleared before anything is counted
        break;
      case kPromptHistory:
        count(f, 0);
        break;
      case kAnswerHistory:
        count(f, 1);
        break;
      case kLogitBias: {
        auto& biases = bias_[f[0]];
        biases.clear();
        for (int32_t k = 0; k < f[1]; k++) biases.emplace_back(f[2 + 2 * k], std::bit_cast<float>(f[3 + 2 * k]));
        break;
      }
    }
    i += 1 + size_t(shape.fields) + (shape.item ? size_t(f[1]) * size_t(shape.item) : 0);
  }

  size_t total = clears_.size() + counts_.size();
  for (size_t g = 0; g < tables_.size(); g++) {
    const size_t columns = size_t(plan_.states[plan_.groups[g].table_state].dims[1]);
    std::vector<int32_t>& edits = table_edits_[g];
    for (size_t e = 0; e < edits.size(); e += 3)
      edits[e + 2] = tables_[g][size_t(edits[e]) * columns + size_t(edits[e + 1])];
    total += edits.size();
  }
  HostMemory& staged = staged_edits_[calls_++ % 2];
  if (total == 0) return;
  const size_t bytes = std::bit_ceil(std::max<size_t>(total * 4, 4096));
  if (edits_.bytes() < bytes) {
    device_->synchronize();  // the old ones may still be read
    edits_ = DeviceMemory(device_, bytes);
  }
  if (staged.bytes() < bytes) staged = HostMemory(device_, bytes);
  size_t next = 0;
  const auto place = [&](const std::vector<int32_t>& edits) {
    if (!edits.empty()) std::memcpy(staged.data() + next * 4, edits.data(), edits.size() * 4);
    int32_t* on_device = reinterpret_cast<int32_t*>(edits_.data()) + next;
    next += edits.size();
    return on_device;
  };
  int32_t* const clears = place(clears_);
  int32_t* const counts = place(counts_);
  for (const auto& edits : table_edits_) place(edits);
  device_->copy(edits_.data(), staged.data(), total * 4);
  int32_t* entries = counts + counts_.size();
  for (size_t g = 0; g < tables_.size(); g++) {
    if (!table_edits_[g].empty())
      launch(write_table_,
             {state(plan_.groups[g].table_state), table(entries, int32_t(table_edits_[g].size() / 3), 3)});
    entries += table_edits_[g].size();
  }
  if (!clears_.empty()) launch(clear_history_, {state(uint32_t(history_)), list(clears, int32_t(clears_.size()))});
  if (!counts_.empty())
    launch(count_history_, {state(uint32_t(history_)), table(counts, int32_t(counts_.size() / 3), 3)});
}

void RowState::feed_tokens(int32_t* tokens, uint32_t count) {
  launch(feed_tokens_, {list(tokens, int32_t(count)), list(last_.data(), int32_t(last_.bytes() / 4))});
}

void RowState::keep_tokens(const ix_tensor& tokens, int32_t* rows, uint32_t count) {
  launch(keep_tokens_, {tokens, list(rows, int32_t(count)), list(last_.data(), int32_t(last_.bytes() / 4))});
}

const std::vector<RowState::Bias>* RowState::biases(int32_t row) const {
  const auto found = bias_.find(row);
  return found == bias_.end() ? nullptr : &found->second;
}

}  // namespace ix
