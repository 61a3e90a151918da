#include "core/plan_check.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/plan.h"
#include "core/signature.h"

namespace ix {
namespace {

// What a signature's names stand for in one step: dimensions (symbolic ones as their negative code) and integer
// scalars.
class Names {
 public:
  int64_t operator[](const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? 0 : found->second;
  }
  // False if the name stands for something else already.
  bool bind(const std::string& name, int64_t value) { return values_.emplace(name, value).first->second == value; }

 private:
  std::map<std::string, int64_t> values_;
};

// What the names in the signature of an op do not say by themselves; the op schemas (lib/ir/ops) hold the same rules.
// The dims of the operands in `apart` are bound as "operand.name".
struct Rule {
  std::string_view op, apart;
  bool (*holds)(const Names&);
};

bool is_kind(const Names& n) { return n["kind"] >= 0 && n["kind"] <= 6; }
bool divides(int64_t part, int64_t whole) { return part > 0 && whole % part == 0; }
bool norm_fits(const Names& n, const char* operand) { return n[operand] == 0 || n[operand] * n["groups"] == n["D"]; }
bool repeats(const Names& n) { return (n["b.T"] == n["T"] || n["b.T"] == 1) && (n["b.D"] == n["D"] || n["b.D"] == 1); }
constexpr int64_t kMaxHeadWidth = 256;

constexpr Rule kRules[] = {
    {"rms_norm", "w", [](const Names& n) { return divides(n["groups"], n["D"]) && norm_fits(n, "w.D"); }},
    {"layer_norm", "w b",
     [](const Names& n) { return divides(n["groups"], n["D"]) && norm_fits(n, "w.D") && norm_fits(n, "b.D"); }},
    {"add", "b", repeats},
    {"sub", "b", repeats},
    {"mul", "b", repeats},
    {"div", "b", repeats},
    {"max", "b", repeats},
    {"act", "", is_kind},
    {"act_mul", "", is_kind},
    {"gated_act", "",
     [](const Names& n) { return is_kind(n) && n["N"] == 2 * n["M"] && divides(n["groups"], n["M"]); }},
    {"concat", "", [](const Names& n) { return n["F"] == n["D"] + n["E"]; }},
    {"rope_table", "", [](const Names& n) { return n["N"] == 2 * n["H"]; }},
    {"rope", "",
     [](const Names& n) { return divides(n["heads"], n["N"]) && n["R"] % 2 == 0 && n["R"] <= n["N"] / n["heads"]; }},
    {"kv_write", "", [](const Names& n) { return n["N"] == n["K"] * n["D"] && n["D"] <= kMaxHeadWidth; }},
    {"qk_norm_rope_kv_write", "",
     [](const Names& n) {
       return n["M"] == n["K"] * n["D"] && n["N"] == n["heads"] * n["D"] && n["R"] % 2 == 0 && n["R"] <= n["D"] &&
              n["D"] <= kMaxHeadWidth;
     }},
    {"attention", "",
     [](const Names& n) {
       return n["N"] == n["heads"] * n["D"] && divides(n["K"], n["heads"]) && (n["H"] == 0 || n["H"] == n["heads"]) &&
              n["window"] >= 0 && n["D"] <= kMaxHeadWidth;
     }},
    {"moe_route", "", [](const Names& n) { return n["top"] > 0 && n["k"] == n["top"]; }},
    {"moe_linear", "x",
     [](const Names& n) {
       return n["M"] == n["k"] * n["N"] && n["x.K"] == n["K"] * (n["per_slot"] ? n["k"] : 1) && n["x.T"] == n["T"];
     }},
    {"moe_combine", "", [](const Names& n) { return n["M"] == n["k"] * n["D"]; }},
    {"sample", "", [](const Names& n) { return n["top"] >= 0 && (n["W"] == 0 || n["W"] * 32 >= n["V"]); }},
};

// A part of the arena that holds a result.
struct Written {
  PlanOperand value;
  uint32_t program;
};

class StepChecker {
 public:
  explicit StepChecker(Plan& plan) : plan_(plan) {
    for (const PlanKernel& kernel : plan.kernels) signatures_.push_back(parse_signature(kernel.signature));
    for (uint32_t p = 0; p < kNumPrograms; p++)
      for (PlanStep& step : plan.programs[p]) check(step, p);
    for (const PlanOutput& output : plan.outputs) {
      const Written* made = find(output.value);
      if (!made || made->program != output.program)
        fail("IX_PLAN", "the plan is damaged: output %s does not last", std::string(output.name).c_str());
    }
  }

 private:
  void check(PlanStep& step, uint32_t program) {
    step_ = &step;
    const Signature& s = signatures_[step.kernel];
    step.op = s.op;
    step.num_inputs = s.operands.size();
    require(step.operands.size() == s.operands.size() + s.results.size(), "the number of its operands");
    require(step.attrs.size() == s.scalars.size(), "the number of its scalars");
    const Rule* rule = std::find_if(std::begin(kRules), std::end(kRules), [&](const Rule& r) { return r.op == s.op; });
    const std::string_view apart = rule == std::end(kRules) ? std::string_view() : rule->apart;
    Names names;
    for (size_t i = 0; i < s.scalars.size(); i++) {
      if (s.scalars[i].type != "i32") continue;
      require(step.attrs[i].i == int32_t(step.attrs[i].i), "a scalar");
      names.bind(std::string(s.scalars[i].name), step.attrs[i].i);
    }
    for (size_t i = 0; i < s.operands.size(); i++) {
      const bool own =
          !s.operands[i].name.empty() &&
          (" " + std::string(apart) + " ").find(" " + std::string(s.operands[i].name) + " ") != std::string::npos;
      check_operand(step.operands[i], s.operands[i], own ? std::string(s.operands[i].name) + "." : "", names);
      if (step.operands[i].space == Space::arena)
        require(find(step.operands[i]) != nullptr, "an operand is read before it is written");
    }
    for (size_t i = 0; i < s.results.size(); i++) {
      const PlanOperand& result = step.operands[s.operands.size() + i];
      require(result.space == Space::arena, "a result outside of the arena");
      check_operand(result, s.results[i], "", names);
      for (size_t k = 0; k < s.operands.size() + i; k++)
        require(!overlap(step.operands[k], result), "a result lies over another operand");
    }
    if (rule != std::end(kRules)) require(rule->holds(names), "shapes or scalars that do not fit together");
    check_places(s);
    for (size_t i = s.operands.size(); i < step.operands.size(); i++) {
      std::erase_if(written_, [&](const Written& w) { return overlap(w.value, step.operands[i]); });
      written_.push_back({step.operands[i], program});
    }
  }

  void check_operand(const PlanOperand& o, const Parameter& p, const std::string& prefix, Names& names) {
    if (o.space == Space::omitted) return require(p.optional, "an operand is missing");
    if (p.type.starts_with("kv_")) {
      require(o.space == Space::cache && plan_.groups[o.index].type == p.type, "a cache of another type");
    } else if (o.space == Space::weight) {
      require(o.type == Type::layout && plan_.weights[o.index].layout == p.type, "a weight of another layout");
    } else {
      static constexpr std::pair<std::string_view, Type> kTypes[] = {
          {"f32", Type::f32}, {"i32", Type::i32}, {"u32", Type::u32}, {"bf16", Type::bf16}};
      require(o.space != Space::cache &&
                  std::find(std::begin(kTypes), std::end(kTypes), std::pair(p.type, o.type)) != std::end(kTypes),
              "an operand of another type");
    }
    require(o.rank == p.dims.size(), "an operand of another rank");
    for (uint32_t d = 0; d < o.rank; d++) {
      const std::string_view dim = p.dims[d];
      int number = 0;
      const bool is_number =
          std::from_chars(dim.data(), dim.data() + dim.size(), number).ptr == dim.data() + dim.size();
      require(is_number ? o.dims[d] == number : names.bind(prefix + std::string(dim), o.dims[d]),
              "an operand of another shape");
      require(o.dims[d] != 0 || o.space == Space::cache || dim == "top", "an operand without elements");
    }
  }

  // Operands that steps are checked through (Executor::check) must be the ones that the executor knows.
  void check_places(const Signature& s) {
    const bool samples = s.op == "sample";
    const PlanOperand* cache = nullptr;
    for (size_t i = 0; i < s.operands.size(); i++) {
      const PlanOperand& o = step_->operands[i];
      const std::string_view name = s.operands[i].name;
      if (o.space == Space::omitted) continue;
      if (o.space == Space::cache) cache = &o;
      if (o.rank == 1 && s.operands[i].type == "i32") require(o.space == Space::input, "indices that are no input");
      if (name == "slots")
        require(cache && o.index == plan_.groups[cache->index].slots_input, "slots of another cache group");
      if (name == "block_table")
        require(cache && o.space == Space::state && o.index == plan_.groups[cache->index].table_state,
                "the block table of another cache group");
      if (samples && o.space == Space::input)
        require(plan_.inputs[o.index].name == name, "an input in another's place");
      if (samples && name == "history")
        require(o.space == Space::state && plan_.states[o.index].name == name, "a state in another's place");
    }
  }

  uint64_t rows(const PlanOperand& o) const {
    return o.dims[0] < 0 ? plan_.max_dims[-1 - o.dims[0]] : uint64_t(o.dims[0]);
  }
  uint64_t end(const PlanOperand& o) const {
    return rows(o) == 0 || o.dims[1] == 0
               ? o.offset
               : o.offset + ((rows(o) - 1) * uint64_t(o.stride) + uint64_t(o.dims[1])) * element_bytes(o.type);
  }
  bool overlap(const PlanOperand& a, const PlanOperand& b) const {
    return a.space == Space::arena && b.space == Space::arena && a.offset < end(b) && b.offset < end(a);
  }
  // The result that an operand is, or is columns of.
  const Written* find(const PlanOperand& o) const {
    for (const Written& w : written_) {
      const PlanOperand& v = w.value;
      if (v.type == o.type && v.dims[0] == o.dims[0] && v.stride == o.stride && o.offset >= v.offset &&
          (o.offset - v.offset) / element_bytes(v.type) + uint64_t(o.dims[1]) <= uint64_t(v.dims[1]))
        return &w;
    }
    return nullptr;
  }
  void require(bool condition, const char* what) const {
    if (!condition) fail("IX_PLAN", "the plan is damaged: step %s: %s", std::string(step_->name).c_str(), what);
  }

  Plan& plan_;
  std::vector<Signature> signatures_;
  std::vector<Written> written_;
  const PlanStep* step_ = nullptr;
};

}  // namespace

void check_steps(Plan& plan) { StepChecker checker(plan); }

}  // namespace ix
