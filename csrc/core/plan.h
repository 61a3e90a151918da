// A decoded plan: what lib/passes/emit.ts wrote, checked once. Every offset, count and index in here is in range.
// The file format is described in docs/plan.md.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/backend_abi.h"

namespace ix {

struct PlanSource {  // a run of rows of one checkpoint tensor; tensor == "" means rows of zeros
  std::string_view tensor;
  uint64_t row_start = 0, row_count = 0;
  uint32_t rope_heads = 0;
  bool transposed = false, add_one = false;
  float scale = 1;
};

struct PlanWeight {
  std::string_view name, layout;
  uint32_t rank = 0;
  int32_t dims[IX_MAX_RANK] = {};
  std::vector<PlanSource> sources;
  uint64_t rows() const;  // of the weight seen as a matrix; a vector has one row per element
  uint64_t columns() const;
};

struct PlanConstant {
  std::string_view name;
  const float* data;
  uint64_t count;
};

enum class Type : uint32_t { f32, i32, u32, layout, cache, bf16 };
constexpr uint32_t kNumTypes = 6;
// Of what lies in the arena, in an input or in a state.
constexpr uint64_t element_bytes(Type type) { return type == Type::bf16 ? 2 : 4; }

struct PlanInput {  // staged anew for each step
  std::string_view name;
  Type type = Type::f32;
  uint32_t rank = 0;
  int32_t dims[IX_MAX_RANK] = {};     // negative: -1 - IX_DIM_*
  uint64_t elements = 0, offset = 0;  // at most so many, at this byte of the input set
};

struct PlanState {  // stays on the device
  std::string_view name;
  Type type = Type::f32;
  uint32_t rank = 0;
  int32_t dims[IX_MAX_RANK] = {};
  uint64_t bytes = 0;
};

enum class Space : uint32_t { omitted, arena, input, state, weight, constant, cache };

struct PlanOperand {
  Space space = Space::omitted;
  uint32_t index = 0;  // of the input, state, weight, constant or cache group
  Type type = Type::f32;
  uint32_t rank = 0;
  int32_t dims[IX_MAX_RANK] = {};
  uint64_t offset = 0;  // bytes in the arena; of a cache: of the layer within a block
  int64_t stride = 0;   // elements from row to row; of a cache: bytes from block to block
};

struct PlanOutput {
  std::string_view name;
  uint32_t program = 0;
  PlanOperand value;
};

struct PlanCacheGroup {
  bool window = false;
  uint32_t window_tokens = 0, layers = 0, kv_heads = 0, head_dim = 0, block_tokens = 0;
  uint64_t block_bytes = 0;
  std::string_view type;
  uint32_t slots_input = 0, table_state = 0;
};

struct PlanKernel {
  std::string_view signature, tags, backend;
};

struct PlanStep {
  std::string_view name, op;
  uint32_t kernel = 0;
  std::vector<PlanOperand> operands;  // inputs, then outputs
  size_t num_inputs = 0;
  std::vector<ix_attr> attrs;
};

enum { kForward = 0, kSample = 1, kNumPrograms = 2 };

struct Plan {
  explicit Plan(std::vector<uint8_t> bytes);  // throws IX_PLAN
  Plan(const Plan&) = delete;

  uint32_t max_dims[IX_NUM_DIMS] = {};  // T, R, S
  uint64_t arena_bytes = 0, input_bytes = 0;
  std::vector<PlanKernel> kernels;
  std::vector<PlanWeight> weights;
  std::vector<PlanConstant> constants;
  std::vector<PlanInput> inputs;
  std::vector<PlanState> states;
  std::vector<PlanOutput> outputs;
  std::vector<PlanCacheGroup> groups;
  std::vector<PlanStep> programs[kNumPrograms];

  uint32_t build_id = 0;

  // Index by name, -1 if there is none.
  int find_input(std::string_view name) const;
  int find_state(std::string_view name) const;
  int find_output(std::string_view name) const;

 private:
  void check_names() const;

  std::vector<uint8_t> bytes_;
};

}  // namespace ix
