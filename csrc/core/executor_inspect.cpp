// Looking into a running plan: checked mode, probes, times per op.
#include <algorithm>
#include <cmath>

#include "core/dtype.h"
#include "core/executor.h"

namespace ix {

std::vector<uint64_t> Executor::trace() const {
  std::vector<uint64_t> out;
  for (const auto& ns : trace_) out.push_back(ns.load(std::memory_order_relaxed));
  return out;
}

std::string Executor::position() const {
  const Op* op = current_;
  return op ? std::string(op->step->name) + " (" + op->kernel->signature + ")" : "before the first op";
}

// Checked mode: what an op leaves unwritten shows as NaN. Results that take the place of an operand are left alone.
void Executor::poison_results(const Op& op) const {
  const auto begin = [](const ix_tensor& t) { return static_cast<char*>(t.data); };
  const auto end = [&](size_t k) {
    const ix_tensor& t = op.operands[k];
    return begin(t) + size_t(t.dims[0]) * size_t(t.stride) * element_bytes(op.step->operands[k].type);
  };
  const size_t num_inputs = op.step->num_inputs;
  for (size_t k = num_inputs; k < op.operands.size(); k++) {
    const ix_tensor& result = op.operands[k];
    if (op.step->operands[k].space != Space::arena || result.rank != 2) continue;
    bool in_place = false;
    for (size_t i = 0; i < num_inputs; i++)
      in_place |=
          op.step->operands[i].space == Space::arena && begin(op.operands[i]) < end(k) && begin(result) < end(i);
    const size_t each = element_bytes(op.step->operands[k].type);
    if (!in_place)
      device_->fill_rows(result.data, size_t(result.stride) * each, 0xff, size_t(result.dims[1]) * each,
                         size_t(result.dims[0]));
  }
}

// Checked mode: a NaN that an op produced is a fault of the op or of its weights.
void Executor::check_results(const Op& op) const {
  synchronize();
  for (size_t k = 0; k < op.operands.size(); k++) {
    const PlanOperand& plan = op.step->operands[k];
    if (plan.space != Space::arena || (plan.type != Type::f32 && plan.type != Type::bf16) || plan.rank != 2) continue;
    const Probe rows = read_rows(op.operands[k], plan.type);
    const float* values = reinterpret_cast<const float*>(rows.data.data());
    for (size_t i = 0; i < size_t(rows.rows) * rows.columns; i++)
      if (std::isnan(values[i]))
        fail("IX_DEVICE", "%s: NaN in operand %zu at row %zu, column %zu", position().c_str(), k, i / rows.columns,
             i % rows.columns);
  }
}

// Rows without their padding, on the host; bf16 as f32.
Executor::Probe Executor::read_rows(const ix_tensor& t, Type type) const {
  const size_t each = element_bytes(type), row_bytes = size_t(t.dims[1]) * each, rows = size_t(t.dims[0]);
  const HostMemory out(device_, rows * row_bytes);
  device_->copy_rows(out.data(), row_bytes, t.data, size_t(t.stride) * each, row_bytes, rows);
  synchronize();
  std::vector<uint8_t> data(rows * size_t(t.dims[1]) * 4);
  if (type == Type::bf16)
    row_to_f32(*find_dtype("bf16"), out.data(), rows * size_t(t.dims[1]), reinterpret_cast<float*>(data.data()));
  else
    std::copy_n(out.data(), data.size(), data.begin());
  return {uint32_t(rows), uint32_t(t.dims[1]), std::move(data)};
}

void Executor::keep_probe(const Op& op) {
  synchronize();
  probed_.clear();
  for (size_t k = op.step->num_inputs; k < op.operands.size(); k++)
    if (op.step->operands[k].space == Space::arena)
      probed_.push_back(read_rows(op.operands[k], op.step->operands[k].type));
}

}  // namespace ix
