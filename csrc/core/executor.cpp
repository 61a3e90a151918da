#include "core/executor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/platform.h"

namespace ix {

namespace {
size_t padded(size_t bytes) { return (bytes + 63) & ~size_t(63); }
}  // namespace

Executor::Executor(std::shared_ptr<Device> device, std::shared_ptr<const Plan> plan,
                   std::shared_ptr<const WeightSet> weights, const ExecutorOptions& options)
    : device_(std::move(device)), plan_(std::move(plan)), weights_(std::move(weights)), options_(options) {
  if (options_.blocks.size() != plan_->groups.size())
    fail("IX_INVALID_ARGUMENT", "the plan has %zu cache groups, got sizes for %zu", plan_->groups.size(),
         options_.blocks.size());
  options_.host_slots.resize(plan_->groups.size());
  require_memory();
  arena_ = DeviceMemory(device_, plan_->arena_bytes);
  inputs_ = DeviceMemory(device_, plan_->input_bytes);
  for (const PlanState& state : plan_->states) states_.emplace_back(device_, state.bytes);
  size_t constant_bytes = 0;
  for (const PlanConstant& c : plan_->constants) constant_bytes += padded(c.count * 4);
  constants_ = DeviceMemory(device_, constant_bytes);
  char* next = constants_.data();
  for (const PlanConstant& c : plan_->constants) {
    ix_error error{};
    if (device_->backend().upload(device_->handle(), next, c.data, c.count * 4, &error) != 0) raise(error);
    constant_data_.push_back(next);
    next += padded(c.count * 4);
  }
  for (size_t g = 0; g < plan_->groups.size(); g++) {
    caches_.emplace_back(device_, size_t(plan_->groups[g].block_bytes) * options_.blocks[g]);
    const PlanState& table = plan_->states[plan_->groups[g].table_state];
    tables_.push_back({std::vector<int32_t>(table.bytes / 4), std::vector<uint32_t>(size_t(table.dims[0]))});
  }
  size_t workspace = 0;
  for (int p = 0; p < kNumPrograms; p++)
    for (const PlanStep& step : plan_->programs[p]) programs_[p].push_back(bind(step, &workspace));
  workspace_ = DeviceMemory(device_, workspace);

  tokens_input_ = plan_->find_input("tokens");
  sample_row_input_ = plan_->find_input("sample_row");
  bias_start_input_ = plan_->find_input("bias_start");
  bias_token_input_ = plan_->find_input("bias_token");
  bias_value_input_ = plan_->find_input("bias_value");
  row_state_input_ = plan_->find_input("row_state");
  target_input_ = plan_->find_input("target");
  history_state_ = plan_->find_state("history");
  token_output_ = plan_->find_output("token");
  rows_.emplace(device_, *plan_, states_, caches_, options_.host_slots);
  trace_ = std::vector<std::atomic<uint64_t>>(programs_[kForward].size() + programs_[kSample].size());
  device_->synchronize();
  for (Staged& s : staged_) {
    s.inputs = HostMemory(device_, plan_->input_bytes);
    s.outputs.resize(plan_->outputs.size());
    if (device_->is_asynchronous()) s.done = Mark(device_);
  }
  thread_ = std::thread([this] { loop(); });
}

Executor::~Executor() { close(); }

void Executor::close() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (!thread_.joinable() || thread_.get_id() == std::this_thread::get_id()) return;
  thread_.join();
  ix_error ignored{};
  device_->backend().synchronize(device_->handle(), &ignored);  // what was launched still uses the memory
}

uint64_t Executor::memory_bytes() const {
  uint64_t sum = arena_.bytes() + inputs_.bytes() + constants_.bytes() + workspace_.bytes();
  for (const DeviceMemory& m : caches_) sum += m.bytes();
  return sum;
}

// Memory is reserved, not filled, and systems promise more than they have.
void Executor::require_memory() const {
  double bytes = double(plan_->arena_bytes) + 3 * double(plan_->input_bytes);
  for (const PlanState& state : plan_->states) bytes += double(state.bytes);
  for (size_t g = 0; g < plan_->groups.size(); g++) bytes += double(plan_->groups[g].block_bytes) * options_.blocks[g];
  device_->require_memory(bytes);
}

// ---- binding: plan operands to addresses, once ------------------------------------

ix_tensor Executor::resolve(const PlanOperand& operand) const {
  ix_tensor t{};
  t.rank = int32_t(operand.rank);
  for (uint32_t i = 0; i < operand.rank; i++)
    t.dims[i] = int32_t(operand.dims[i] < 0 ? plan_->max_dims[-1 - operand.dims[i]] : operand.dims[i]);
  t.stride = operand.stride;
  switch (operand.space) {
    case Space::omitted:
      break;
    case Space::arena:
      t.data = arena_.data() + operand.offset;
      break;
    case Space::input:
      t.data = inputs_.data() + plan_->inputs[operand.index].offset;
      break;
    case Space::state:
      t.data = states_[operand.index].data();
      break;
    case Space::weight:
      t.data = weights_->data(operand.index);
      break;
    case Space::constant:
      t.data = constant_data_[operand.index];
      break;
    case Space::cache:
      t.data = caches_[operand.index].data() + operand.offset;
      t.dims[0] = int32_t(options_.blocks[operand.index]);
      break;
  }
  return t;
}

Executor::Op Executor::bind(const PlanStep& step, size_t* workspace_bytes) {
  const PlanKernel& wanted = plan_->kernels[step.kernel];
  if (!wanted.backend.empty() && wanted.backend != device_->backend().name)
    fail("IX_NO_KERNEL", "step %s wants a kernel of the backend %s", std::string(step.name).c_str(),
         std::string(wanted.backend).c_str());
  Op op{device_->find_kernel(std::string(wanted.signature), std::string(wanted.tags)), {}, {}, step.attrs, &step};
  if (!op.kernel)
    fail("IX_NO_KERNEL", "the %s backend has no kernel %s [%s]", device_->backend().name,
         std::string(wanted.signature).c_str(), std::string(wanted.tags).c_str());
  for (size_t i = 0; i < step.operands.size(); i++) {
    op.operands.push_back(resolve(step.operands[i]));
    if (step.operands[i].rank && step.operands[i].dims[0] < 0)
      op.symbolic.emplace_back(uint16_t(i), uint8_t(-1 - step.operands[i].dims[0]));
  }
  if (step.op == "attention") {
    const Attention attention{step.operands[2].index, step.operands[3].index, step.operands[4].index,
                              step.operands[1].index, step.attrs[2].i};
    if (std::find(attentions_.begin(), attentions_.end(), attention) == attentions_.end())
      attentions_.push_back(attention);
  }
  if (op.kernel->workspace) {
    const ix_kernel_call call{op.operands.data(), op.attrs.data(), nullptr};
    *workspace_bytes = std::max(*workspace_bytes, op.kernel->workspace(&call, device_->num_threads()));
  }
  return op;
}

// ---- the caller's side ----------------------------------------------------------------

uint64_t Executor::submit(const StepInput& step) {
  check(step);
  std::unique_lock lock(mutex_);
  if (stop_) fail("IX_DISPOSED", "the executor was closed");
  if (submitted_ - completed_ >= 2) fail("IX_INVALID_ARGUMENT", "two steps are under way already");
  Staged& staged = staged_[(submitted_ + 1) % 2];
  staged.ticket = submitted_ + 1;
  std::copy_n(step.dims, IX_NUM_DIMS, staged.dims);
  for_filled(step.dims, 0, [&](uint64_t offset, uint64_t bytes) {
    std::memcpy(staged.inputs.data() + offset, step.inputs + offset, bytes);
  });
  staged.feeds = false;
  for (uint32_t i = 0; tokens_input_ >= 0 && i < step.dims[IX_DIM_T]; i++)
    staged.feeds |= place(staged.inputs, tokens_input_)[i] < 0;
  staged.commands.assign(step.commands, step.commands + step.num_commands);
  staged.wanted = step.wanted;
  staged.error.reset();
  submitted_++;
  lock.unlock();
  changed_.notify_all();
  return staged.ticket;
}

void Executor::wait(uint64_t ticket) {
  std::unique_lock lock(mutex_);
  if (ticket == 0 || ticket > submitted_ || ticket + 1 < submitted_)
    fail("IX_INVALID_ARGUMENT", "there is no step %llu to wait for", (unsigned long long)ticket);
  changed_.wait(lock, [&] { return launched_ >= ticket || stop_; });
  if (launched_ < ticket) fail("IX_DISPOSED", "the executor was closed during the step");
  Staged& step = staged_[ticket % 2];
  if (completed_ < ticket) {
    lock.unlock();
    if (!step.error) {
      try {
        step.done.wait();
      } catch (const Error& error) {
        step.error = Error(error.code(), std::string(error.what()) + "; the last op was " + position());
      }
    }
    lock.lock();
    completed_ = std::max(completed_, ticket);
  }
  if (step.error) throw *step.error;
}

Executor::Output Executor::output(uint64_t ticket, uint32_t index) const {
  const Staged& staged = staged_[ticket % 2];
  if (staged.ticket != ticket || index >= plan_->outputs.size() || !(staged.wanted >> index & 1))
    fail("IX_INVALID_ARGUMENT", "output %u of that step was not kept", index);
  const PlanOperand& value = plan_->outputs[index].value;
  const uint32_t rows = uint32_t(value.dims[0] < 0 ? staged.dims[-1 - value.dims[0]] : value.dims[0]);
  return {staged.outputs[index].data(), rows, uint32_t(value.dims[1])};
}

// ---- the executor's thread ---------------------------------------------------------------

void Executor::loop() {
  for (;;) {
    Staged* step;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || launched_ < submitted_; });
      if (stop_) return;
      step = &staged_[(launched_ + 1) % 2];
    }
    try {
      run(*step);
    } catch (const Error& error) {
      step->error = error;
    } catch (const std::exception& error) {
      step->error = Error("IX_DEVICE", error.what());
    }
    if (step->error) {  // nothing may run on while its inputs are staged anew; what went wrong is known
      ix_error ignored{};
      device_->backend().synchronize(device_->handle(), &ignored);
    }
    {
      std::lock_guard lock(mutex_);
      launched_++;
      if (!device_->is_asynchronous()) completed_ = launched_;
    }
    changed_.notify_all();
  }
}

void Executor::run(Staged& step) {
  rows_->apply(step.commands);
  upload_inputs(step, stage_bias(step));
  if (!replay(step)) run_programs(step);
  keep_outputs(step);
  if (device_->is_asynchronous())
    step.done.record();
  else
    synchronize();
}

// Everything between the inputs' arrival and the outputs' departure, at addresses that never change.
void Executor::run_programs(const Staged& step) {
  const uint32_t num_sampled = step.dims[IX_DIM_S];
  const auto on_device = [&](int input) {
    return reinterpret_cast<int32_t*>(inputs_.data() + plan_->inputs[input].offset);
  };
  if (step.feeds) rows_->feed_tokens(on_device(tokens_input_), step.dims[IX_DIM_T]);
  run_program(kForward, step);
  if (num_sampled == 0) return;
  run_program(kSample, step);
  if (token_output_ >= 0 && sample_row_input_ >= 0)
    rows_->keep_tokens(resolve(plan_->outputs[token_output_].value), on_device(sample_row_input_), num_sampled);
}

// Steps in which every sequence feeds back the token it drew are told apart by their number alone. The first of a kind
// is launched op by op, which also lets kernels make ready what must not be made during a capture.
bool Executor::replay(const Staged& step) {
  constexpr uint32_t kMaxSequences = 256;  // beyond, launching hides behind the work
  const uint32_t count = step.dims[IX_DIM_R];
  if (!device_->is_asynchronous() || options_.checked || tracing_ || probe_op_ >= 0 || !step.feeds ||
      count > kMaxSequences || step.dims[IX_DIM_T] != count || step.dims[IX_DIM_S] != count)
    return false;
  const auto [found, is_new] = graphs_.try_emplace(count);
  if (is_new) return false;
  std::optional<Graph>& graph = found->second;
  if (!graph) graph = Graph::capture(device_, [&] { run_programs(step); });
  if (!*graph) return false;
  graph->replay();
  return true;
}

// f(offset, bytes) for the filled part of each input. Inputs without a symbolic dimension (the bias lists) are the
// executor's own.
template <class F>
void Executor::for_filled(const uint32_t* dims, uint64_t num_biases, F&& f) const {
  for (const PlanInput& input : plan_->inputs) {
    if (input.rank == 0) continue;
    uint64_t row = 1;
    for (uint32_t i = 1; i < input.rank; i++) row *= uint64_t(input.dims[i]);
    const int dim = -1 - input.dims[0];
    const uint64_t rows =
        dim < 0 ? num_biases : uint64_t(dims[dim]) + (dim == IX_DIM_T ? 0 : 1);  // lists of starts end with the total
    if (rows > 0) f(input.offset, std::min(rows * row, input.elements) * 4);
  }
}

// The rows' bias lists, one after another; returns how many entries there are.
uint64_t Executor::stage_bias(Staged& step) const {
  if (bias_start_input_ < 0 || bias_token_input_ < 0 || bias_value_input_ < 0 || sample_row_input_ < 0) return 0;
  const uint64_t capacity =
      std::min(plan_->inputs[bias_token_input_].elements, plan_->inputs[bias_value_input_].elements);
  int32_t* starts = place(step.inputs, bias_start_input_);
  uint64_t count = 0;
  for (uint32_t s = 0; s < step.dims[IX_DIM_S]; s++) {
    starts[s] = int32_t(count);
    const auto* biases = rows_->biases(place(step.inputs, sample_row_input_)[s]);
    if (!biases) continue;
    if (biases->size() > capacity - count)
      fail("IX_INVALID_ARGUMENT", "the logit biases of one step exceed %llu entries", (unsigned long long)capacity);
    for (const auto& [id, bias] : *biases) {
      place(step.inputs, bias_token_input_)[count] = id;
      place<float>(step.inputs, bias_value_input_)[count++] = bias;
    }
  }
  starts[step.dims[IX_DIM_S]] = int32_t(count);
  return count;
}

// Parts that lie close together go in one copy: on a GPU a copy costs more than its bytes.
void Executor::upload_inputs(const Staged& step, uint64_t num_biases) const {
  constexpr uint64_t kGap = 2048;
  uint64_t begin = 0, end = 0;
  const auto flush = [&] { device_->copy(inputs_.data() + begin, step.inputs.data() + begin, end - begin); };
  for_filled(step.dims, num_biases, [&](uint64_t offset, uint64_t bytes) {
    if (offset > end + kGap) {
      flush();
      begin = offset;
    }
    end = offset + bytes;
  });
  flush();
}

void Executor::run_program(int program, const Staged& step) {
  const size_t first = program == kForward ? 0 : programs_[kForward].size();
  for (size_t i = 0; i < programs_[program].size(); i++) {
    if (stop_.load(std::memory_order_relaxed)) {
      synchronize();
      throw Error("IX_DISPOSED", "the executor was closed during the step");
    }
    Op& op = programs_[program][i];
    for (const auto& [operand, dim] : op.symbolic) op.operands[operand].dims[0] = int32_t(step.dims[dim]);
    const ix_kernel_call call{op.operands.data(), op.attrs.data(), workspace_.data()};
    current_.store(&op, std::memory_order_relaxed);
    if (options_.checked) poison_results(op);
    const bool tracing = tracing_.load(std::memory_order_relaxed);
    const int64_t start = tracing ? platform::now_ns() : 0;
    op.kernel->launch(device_->stream(), &call);
    if (tracing && device_->is_asynchronous()) synchronize();
    if (tracing) trace_[first + i].fetch_add(uint64_t(platform::now_ns() - start), std::memory_order_relaxed);
    if (options_.checked) check_results(op);
    if (int(first + i) == probe_op_) keep_probe(op);
  }
}

// An error that the device reports is of the last op or, unless each was waited for, of one before it.
void Executor::synchronize() const {
  ix_error error{};
  if (device_->backend().synchronize(device_->handle(), &error) != 0)
    fail(error.code, "%s; the last op was %s", error.text, position().c_str());
}

void Executor::keep_outputs(Staged& step) {
  for (size_t i = 0; i < plan_->outputs.size(); i++) {
    if (!(step.wanted >> i & 1)) continue;
    const PlanOperand& value = plan_->outputs[i].value;
    const ix_tensor t = resolve(value);
    const size_t row_bytes = size_t(t.dims[1]) * 4,
                 rows = value.dims[0] < 0 ? step.dims[-1 - value.dims[0]] : size_t(t.dims[0]);
    if (step.outputs[i].bytes() < rows * row_bytes) step.outputs[i] = HostMemory(device_, rows * row_bytes);
    device_->copy_rows(step.outputs[i].data(), row_bytes, t.data, size_t(t.stride) * 4, row_bytes, rows);
  }
}

}  // namespace ix
