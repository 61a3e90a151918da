// Reads the plan file of docs/plan.md. A plan is trusted after this: whatever the executor follows is checked here.
#include "core/plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/plan_check.h"

namespace ix {
namespace {

constexpr uint32_t kVersion = 1;
enum Section {
  kStrings,
  kKernels,
  kWeights,
  kSources,
  kConstants,
  kFloats,
  kInputs,
  kStates,
  kOutputs,
  kGroups,
  kPrograms,
  kSteps,
  kOperands,
  kScalars,
  kSections
};
constexpr uint32_t kRecordBytes[kSections] = {1, 24, 48, 40, 40, 4, 48, 40, 16, 48, 16, 32, 48, 8};
constexpr size_t kHeaderBytes = 72;

void require(bool condition, const char* what) {
  if (!condition) fail("IX_PLAN", "the plan is damaged: %s", what);
}

uint64_t fnv1a(const uint8_t* bytes, size_t count) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < count; i++) hash = (hash ^ bytes[i]) * 0x100000001b3ull;
  return hash;
}

// Reads fields one after another. Its bytes are known to be there.
class Cursor {
 public:
  explicit Cursor(const uint8_t* at) : at_(at) {}
  template <class T>
  T get() {
    T value;
    std::memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  uint32_t u32() { return get<uint32_t>(); }
  uint64_t u64() { return get<uint64_t>(); }
  void dims(int32_t* out, uint32_t rank) {
    for (uint32_t i = 0; i < IX_MAX_RANK; i++) {
      out[i] = get<int32_t>();
      require(i < rank || out[i] == 0, "a dimension beyond the rank");
    }
  }
  void reserved() { require(u32() == 0, "a reserved field"); }

 private:
  const uint8_t* at_;
};

class Reader {
 public:
  explicit Reader(const std::vector<uint8_t>& bytes) : bytes_(bytes) {
    require(bytes.size() >= kHeaderBytes + kSections * 16, "it is shorter than its header");
    require(std::memcmp(bytes.data(), "IXPL", 4) == 0, "it does not begin with IXPL");
    Cursor header(bytes.data() + 4);
    require(header.u32() == kVersion, "another format version");
    build_id = header.u32();
    const uint32_t rank = header.u32(), world = header.u32();
    require(rank < world, "rank outside of the world");
    require(header.u32() == kSections, "number of sections");
    require(header.u64() == bytes.size(), "total bytes");
    require(header.u64() == fnv1a(bytes.data() + kHeaderBytes, bytes.size() - kHeaderBytes), "checksum");
    for (uint32_t& bound : max_dims) {
      bound = header.u32();
      require(bound <= 1u << 24, "bound of a dimension");
    }
    header.reserved();
    arena_bytes = header.u64();
    input_bytes = header.u64();
    require(arena_bytes < uint64_t(1) << 48 && input_bytes < uint64_t(1) << 40, "size of the arena or the inputs");
    Cursor directory(bytes.data() + kHeaderBytes);
    uint64_t end = kHeaderBytes + kSections * 16;
    for (int i = 0; i < kSections; i++) {
      offset_[i] = directory.u64();
      count_[i] = directory.u32();
      require(directory.u32() == kRecordBytes[i], "width of a record");
      require(offset_[i] % 8 == 0 && offset_[i] >= end && offset_[i] <= bytes.size(), "offset of a section");
      require(uint64_t(count_[i]) * kRecordBytes[i] <= bytes.size() - offset_[i], "length of a section");
      require(std::all_of(bytes.begin() + ptrdiff_t(end), bytes.begin() + ptrdiff_t(offset_[i]),
                          [](uint8_t b) { return b == 0; }),
              "bytes between sections");
      end = offset_[i] + uint64_t(count_[i]) * kRecordBytes[i];
    }
  }

  uint32_t count(Section s) const { return count_[s]; }
  Cursor record(Section s, uint32_t i) const {
    return Cursor(bytes_.data() + offset_[s] + uint64_t(i) * kRecordBytes[s]);
  }
  const uint8_t* data(Section s) const { return bytes_.data() + offset_[s]; }

  std::string_view str(Cursor& c) const {
    const uint32_t start = c.u32(), length = c.u32();
    require(start <= count_[kStrings] && length <= count_[kStrings] - start, "a string");
    return {reinterpret_cast<const char*>(data(kStrings)) + start, length};
  }
  uint32_t index(uint32_t value, size_t limit, const char* what) const {
    require(value < limit, what);
    return value;
  }
  // first and count of a run of records
  void run(uint32_t first, uint32_t num, Section s) const {
    require(first <= count_[s] && num <= count_[s] - first, "a run of records");
  }

  uint32_t build_id = 0, max_dims[IX_NUM_DIMS] = {};
  uint64_t arena_bytes = 0, input_bytes = 0;

 private:
  const std::vector<uint8_t>& bytes_;
  uint64_t offset_[kSections];
  uint32_t count_[kSections];
};

// Product of dimensions, symbolic ones at their bound.
uint64_t elements(const int32_t* dims, uint32_t rank, const uint32_t* bounds) {
  uint64_t product = 1;
  for (uint32_t i = 0; i < rank; i++) {
    const int32_t d = dims[i];
    require(d >= 0 || (i == 0 && bounds && d >= -IX_NUM_DIMS), "a dimension");
    require(!__builtin_mul_overflow(product, d < 0 ? uint64_t(bounds[-1 - d]) : uint64_t(d), &product) &&
                product < uint64_t(1) << 48,
            "a shape");
  }
  return product;
}

// Whether an input or state is a table of that type and rank, with `rows` as its leading dimension (0: any).
template <class T>
bool is_table(const T& table, Type type, uint32_t rank, int32_t rows = 0) {
  return table.type == type && table.rank == rank && (rows == 0 || table.dims[0] == rows);
}

// An operand must lie within what it points into.
PlanOperand read_operand(const Reader& in, const Plan& plan, uint32_t i) {
  Cursor c = in.record(kOperands, i);
  PlanOperand o;
  const uint32_t space = in.index(c.u32(), 7, "an operand's space");
  o.space = Space(space);
  o.index = c.u32();
  o.type = Type(in.index(c.u32(), kNumTypes, "an operand's type"));
  o.rank = in.index(c.u32(), IX_MAX_RANK + 1, "an operand's rank");
  c.dims(o.dims, o.rank);
  o.offset = c.u64();
  o.stride = c.get<int64_t>();
  const uint64_t count = elements(o.dims, o.rank, plan.max_dims);
  const bool plain = o.type != Type::layout && o.type != Type::cache;
  switch (o.space) {
    case Space::omitted:
      require(o.index == 0 && o.type == Type::f32 && o.rank == 0 && o.offset == 0 && o.stride == 0,
              "an omitted operand");
      break;
    case Space::arena: {
      require(plain && o.index == 0 && o.rank == 2 && o.stride >= o.dims[1], "an operand in the arena");
      const uint64_t rows = o.dims[0] < 0 ? plan.max_dims[-1 - o.dims[0]] : uint64_t(o.dims[0]);
      const uint64_t each = element_bytes(o.type);
      require(o.stride < int64_t(1) << 32 && o.offset % each == 0, "an operand in the arena");
      const uint64_t bytes = rows == 0 ? 0 : ((rows - 1) * uint64_t(o.stride) + uint64_t(o.dims[1])) * each;
      require(o.offset <= plan.arena_bytes && bytes <= plan.arena_bytes - o.offset, "an operand outside of the arena");
      break;
    }
    case Space::input: {
      in.index(o.index, plan.inputs.size(), "an operand's input");
      const PlanInput& input = plan.inputs[o.index];
      require(o.type == input.type && o.rank == input.rank && std::equal(o.dims, o.dims + IX_MAX_RANK, input.dims),
              "an operand that differs from its input");
      break;
    }
    case Space::state: {
      in.index(o.index, plan.states.size(), "an operand's state");
      const PlanState& state = plan.states[o.index];
      require(o.type == state.type && o.rank == state.rank && std::equal(o.dims, o.dims + IX_MAX_RANK, state.dims),
              "an operand that differs from its state");
      break;
    }
    case Space::weight: {
      in.index(o.index, plan.weights.size(), "an operand's weight");
      const PlanWeight& w = plan.weights[o.index];
      require(o.type == Type::layout && o.rank == w.rank && std::equal(o.dims, o.dims + IX_MAX_RANK, w.dims),
              "an operand that differs from its weight");
      break;
    }
    case Space::constant:
      in.index(o.index, plan.constants.size(), "an operand's constant");
      require(o.type == Type::f32 && count == plan.constants[o.index].count,
              "an operand that differs from its constant");
      break;
    case Space::cache: {
      in.index(o.index, plan.groups.size(), "an operand's cache group");
      const PlanCacheGroup& g = plan.groups[o.index];
      const uint64_t layer_bytes = g.block_bytes / g.layers;
      require(o.type == Type::cache && o.rank == 4 && o.dims[1] == int32_t(g.block_tokens) &&
                  o.dims[2] == int32_t(g.kv_heads) && o.dims[3] == int32_t(g.head_dim) &&
                  o.stride == int64_t(g.block_bytes) && o.offset % layer_bytes == 0 && o.offset < g.block_bytes,
              "a cache operand");
      break;
    }
  }
  // Everything but arena and cache is dense and begins where its own thing does.
  if (o.space != Space::arena && o.space != Space::cache && o.space != Space::omitted) {
    int64_t dense = 1;
    for (uint32_t d = 1; d < o.rank; d++) dense *= o.dims[d];
    require(o.offset == 0 && o.stride == dense, "an operand's offset or stride");
  }
  return o;
}

}  // namespace

uint64_t PlanWeight::rows() const {
  if (rank == 1) return uint64_t(dims[0]);
  uint64_t rows = 1;
  for (uint32_t i = 0; i + 1 < rank; i++) rows *= uint64_t(dims[i]);
  return rows;
}
uint64_t PlanWeight::columns() const { return rank == 1 ? 1 : uint64_t(dims[rank - 1]); }

Plan::Plan(std::vector<uint8_t> bytes) : bytes_(std::move(bytes)) {
  const Reader in(bytes_);
  build_id = in.build_id;
  std::copy_n(in.max_dims, IX_NUM_DIMS, max_dims);
  arena_bytes = in.arena_bytes;
  input_bytes = in.input_bytes;

  for (uint32_t i = 0; i < in.count(kKernels); i++) {
    Cursor c = in.record(kKernels, i);
    kernels.push_back({in.str(c), in.str(c), in.str(c)});
  }
  for (uint32_t i = 0; i < in.count(kWeights); i++) {
    Cursor c = in.record(kWeights, i);
    PlanWeight w;
    w.name = in.str(c);
    w.layout = in.str(c);
    w.rank = c.u32();
    require(w.rank >= 1 && w.rank <= 3, "rank of a weight");
    c.dims(w.dims, w.rank);
    require(elements(w.dims, w.rank, nullptr) > 0, "an empty weight");
    const uint32_t first = c.u32(), num = c.u32();
    c.reserved();
    in.run(first, num, kSources);
    for (uint32_t k = first; k < first + num; k++) {
      Cursor s = in.record(kSources, k);
      PlanSource source;
      source.tensor = in.str(s);
      source.row_start = s.u64();
      source.row_count = s.u64();
      source.rope_heads = s.u32();
      const uint32_t flags = s.u32();
      source.transposed = flags & 1;
      source.add_one = flags & 2;
      source.scale = float(s.get<double>());
      require(flags < 4 && source.row_count > 0 && std::isfinite(source.scale), "a source");
      require(source.row_start < uint64_t(1) << 48 && source.row_count < uint64_t(1) << 48, "rows of a source");
      w.sources.push_back(source);
    }
    weights.push_back(std::move(w));
  }
  for (uint32_t i = 0; i < in.count(kConstants); i++) {
    Cursor c = in.record(kConstants, i);
    const std::string_view name = in.str(c);
    const uint32_t rank = in.index(c.u32(), IX_MAX_RANK + 1, "rank of a constant");
    int32_t dims[IX_MAX_RANK];
    c.dims(dims, rank);
    c.reserved();
    const uint64_t first = c.u64(), count = elements(dims, rank, nullptr);
    require(first <= in.count(kFloats) && count <= in.count(kFloats) - first, "a constant's data");
    constants.push_back({name, reinterpret_cast<const float*>(in.data(kFloats)) + first, count});
  }
  uint64_t end_of_inputs = 0;
  const uint32_t room[IX_NUM_DIMS] = {max_dims[IX_DIM_T], max_dims[IX_DIM_R] + 1, max_dims[IX_DIM_S] + 1};
  for (uint32_t i = 0; i < in.count(kInputs); i++) {
    Cursor c = in.record(kInputs, i);
    PlanInput input;
    input.name = in.str(c);
    input.type = Type(in.index(c.u32(), 3, "type of an input"));
    input.rank = in.index(c.u32(), IX_MAX_RANK + 1, "rank of an input");
    c.dims(input.dims, input.rank);
    input.elements = c.u64();
    input.offset = c.u64();
    // one after another; R and S have room for one more
    require(input.offset == end_of_inputs && input.elements <= (input_bytes - input.offset) / 4,
            "an input outside of its set");
    require(elements(input.dims, input.rank, room) == input.elements, "an input's room");
    end_of_inputs = (input.offset + input.elements * 4 + 63) & ~uint64_t(63);
    inputs.push_back(input);
  }
  require(end_of_inputs == input_bytes, "size of the inputs");
  for (uint32_t i = 0; i < in.count(kStates); i++) {
    Cursor c = in.record(kStates, i);
    PlanState state;
    state.name = in.str(c);
    state.type = Type(in.index(c.u32(), 3, "type of a state"));
    state.rank = in.index(c.u32(), IX_MAX_RANK + 1, "rank of a state");
    c.dims(state.dims, state.rank);
    state.bytes = c.u64();
    require(elements(state.dims, state.rank, nullptr) * 4 == state.bytes, "size of a state");
    states.push_back(state);
  }
  for (uint32_t i = 0; i < in.count(kGroups); i++) {
    Cursor c = in.record(kGroups, i);
    PlanCacheGroup g;
    g.window = in.index(c.u32(), 2, "kind of a cache group") == 1;
    g.window_tokens = c.u32();
    g.layers = c.u32();
    g.kv_heads = c.u32();
    g.head_dim = c.u32();
    g.block_tokens = c.u32();
    g.slots_input = in.index(c.u32(), inputs.size(), "slots of a cache group");
    g.table_state = in.index(c.u32(), states.size(), "block table of a cache group");
    g.block_bytes = c.u64();
    g.type = in.str(c);
    require(g.layers && g.layers <= 4096 && g.kv_heads && g.kv_heads <= 65536 && g.head_dim && g.head_dim <= 256 &&
                g.block_tokens && g.block_tokens <= 4096,
            "a cache group");
    const uint64_t each = g.type == "kv_f32" ? 4 : g.type == "kv_bf16" ? 2 : 0;
    require(each == 4 || (each == 2 && g.head_dim % 2 == 0 && g.block_tokens % 2 == 0), "type of a cache group");
    require(256 % g.block_tokens == 0 &&
                g.block_bytes == uint64_t(g.layers) * 2 * g.kv_heads * g.head_dim * g.block_tokens * each,
            "block of a cache group");
    require(is_table(inputs[g.slots_input], Type::i32, 1, -1 - IX_DIM_T), "slots of a cache group");
    require(is_table(states[g.table_state], Type::i32, 2), "block table of a cache group");
    groups.push_back(g);
  }
  for (uint32_t i = 0; i < in.count(kOutputs); i++) {
    Cursor c = in.record(kOutputs, i);
    PlanOutput o;
    o.name = in.str(c);
    o.program = in.index(c.u32(), kNumPrograms, "program of an output");
    o.value = read_operand(in, *this, in.index(c.u32(), in.count(kOperands), "an output's operand"));
    require(o.value.space == Space::arena && element_bytes(o.value.type) == 4, "an output's place or type");
    outputs.push_back(o);
  }
  require(in.count(kPrograms) == kNumPrograms && outputs.size() <= 32, "number of programs or outputs");
  for (uint32_t p = 0; p < kNumPrograms; p++) {
    Cursor c = in.record(kPrograms, p);
    require(in.str(c) == (p == kForward ? "forward" : "sample"), "name of a program");
    const uint32_t first_step = c.u32(), num_steps = c.u32();
    in.run(first_step, num_steps, kSteps);
    for (uint32_t i = first_step; i < first_step + num_steps; i++) {
      Cursor s = in.record(kSteps, i);
      PlanStep step;
      step.kernel = in.index(s.u32(), kernels.size(), "kernel of a step");
      const uint32_t first = s.u32(), num = s.u32(), first_scalar = s.u32(), num_scalars = s.u32();
      s.reserved();
      step.name = in.str(s);
      in.run(first, num, kOperands);
      in.run(first_scalar, num_scalars, kScalars);
      for (uint32_t k = first; k < first + num; k++) step.operands.push_back(read_operand(in, *this, k));
      for (uint32_t k = first_scalar; k < first_scalar + num_scalars; k++)
        step.attrs.push_back(in.record(kScalars, k).get<ix_attr>());
      programs[p].push_back(std::move(step));
    }
  }
  check_steps(*this);
  check_names();
}

// What the executor fills or reads by its name.
void Plan::check_names() const {
  const auto input = [&](std::string_view name, Type type, int32_t rows) {
    const int i = find_input(name);
    require(i < 0 || is_table(inputs[i], type, 1, rows), "an input that the executor fills");
    return i >= 0;
  };
  input("tokens", Type::i32, -1 - IX_DIM_T);
  for (const char* name : {"sample_row", "row_state", "target", "mask_row"}) input(name, Type::i32, -1 - IX_DIM_S);
  const bool start = input("bias_start", Type::i32, -1 - IX_DIM_S), token = input("bias_token", Type::i32, 0),
             value = input("bias_value", Type::f32, 0);
  require(start == token && token == value && (!start || find_input("sample_row") >= 0) &&
              (!start || inputs[find_input("bias_token")].elements == inputs[find_input("bias_value")].elements),
          "inputs of the logit bias");
  const int history = find_state("history"), drawn = find_output("token");
  require(history < 0 || is_table(states[history], Type::u32, 2), "the history of tokens");
  require(drawn < 0 || (is_table(outputs[drawn].value, Type::i32, 2, -1 - IX_DIM_S) &&
                        outputs[drawn].value.dims[1] == 1 && outputs[drawn].program == kSample),
          "the output token");
}

template <class T>
static int find(const std::vector<T>& list, std::string_view name) {
  for (size_t i = 0; i < list.size(); i++)
    if (list[i].name == name) return int(i);
  return -1;
}
int Plan::find_input(std::string_view name) const { return find(inputs, name); }
int Plan::find_state(std::string_view name) const { return find(states, name); }
int Plan::find_output(std::string_view name) const { return find(outputs, name); }

}  // namespace ix
