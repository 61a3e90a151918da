// The text form of a kernel's interface (grammar in docs/plan.md), taken apart. Nothing here knows any op.
#pragma once
#include <string_view>
#include <vector>

namespace ix {

struct Parameter {
  std::string_view name, type;         // a result has no name
  std::vector<std::string_view> dims;  // names or numbers; empty for scalars
  bool optional = false;
};

struct Signature {
  std::string_view op;
  std::vector<Parameter> operands, scalars;
  std::vector<Parameter> results;  // without those that are an operand changed in place: caches
};

// Throws IX_PLAN. The parts point into `text`.
Signature parse_signature(std::string_view text);

}  // namespace ix
