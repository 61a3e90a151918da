#include "core/signature.h"

#include "core/error.h"

namespace ix {
namespace {

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(' ');
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first, text.find_last_not_of(' ') + 1 - first);
}

// Splits at commas outside of brackets.
std::vector<std::string_view> parts(std::string_view text) {
  std::vector<std::string_view> out;
  size_t start = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); i++) {
    if (i < text.size() && text[i] == '[') depth++;
    if (i < text.size() && text[i] == ']') depth--;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    if (i > start) out.push_back(trim(text.substr(start, i - start)));
    start = i + 1;
  }
  return out;
}

// "f32[T,D]", "f32"
Parameter typed(std::string_view text) {
  Parameter p;
  const size_t open = text.find('[');
  p.type = trim(text.substr(0, open));
  if (open != std::string_view::npos && text.back() == ']')
    p.dims = parts(text.substr(open + 1, text.size() - open - 2));
  return p;
}

}  // namespace

Signature parse_signature(std::string_view text) {
  const size_t open = text.find('('), close = text.find(") -> ");
  if (open == std::string_view::npos || close == std::string_view::npos || open > close)
    fail("IX_PLAN", "the plan is damaged: a kernel's signature is \"%.*s\"", int(text.size()), text.data());
  Signature out;
  out.op = text.substr(0, open);
  for (const std::string_view item : parts(text.substr(open + 1, close - open - 1))) {
    const size_t colon = item.find(':');
    if (colon == std::string_view::npos || colon == 0)
      fail("IX_PLAN", "the plan is damaged: a kernel's parameter is \"%.*s\"", int(item.size()), item.data());
    Parameter p = typed(trim(item.substr(colon + 1)));
    p.optional = item[colon - 1] == '?';
    p.name = item.substr(0, colon - (p.optional ? 1 : 0));
    (p.dims.empty() ? out.scalars : out.operands).push_back(std::move(p));
  }
  for (const std::string_view item : parts(text.substr(close + 5))) {
    Parameter p = typed(item);
    if (!p.dims.empty() && !p.type.starts_with("kv_")) out.results.push_back(std::move(p));
  }
  return out;
}

}  // namespace ix
