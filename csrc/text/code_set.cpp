// Operations on sets of code points.
#include "text/code_set.h"

#include <algorithm>

#include "text/unicode.h"

namespace ix {

Bounds complement(const Bounds& set) {
  Bounds out;
  if (set.empty() || set.front() != 0) out.push_back(0);
  out.insert(out.end(), set.begin() + (out.empty() ? 1 : 0), set.end());
  if (out.back() == 0x110000) {
    out.pop_back();
  } else {
    out.push_back(0x110000);
  }
  return out;
}

Bounds unite(const Bounds& a, const Bounds& b) {
  std::vector<std::pair<uint32_t, uint32_t>> ranges;
  for (size_t i = 0; i + 1 < a.size(); i += 2) ranges.emplace_back(a[i], a[i + 1]);
  for (size_t i = 0; i + 1 < b.size(); i += 2) ranges.emplace_back(b[i], b[i + 1]);
  std::sort(ranges.begin(), ranges.end());
  Bounds out;
  for (const auto& [start, end] : ranges) {
    if (!out.empty() && start <= out.back()) {
      out.back() = std::max(out.back(), end);
    } else {
      out.push_back(start);
      out.push_back(end);
    }
  }
  return out;
}

Bounds intersect(const Bounds& a, const Bounds& b) { return complement(unite(complement(a), complement(b))); }

Bounds ignore_case(const Bounds& set) {
  Bounds out = set;
  uint32_t budget = 4096;  // larger sets are properties, which hold both cases or mean one of them
  for (size_t i = 0; i + 1 < set.size(); i += 2) {
    for (uint32_t c = set[i]; c < set[i + 1] && budget > 0; ++c, --budget) {
      for (const uint32_t variant : case_variants(c)) out = unite(out, {variant, variant + 1});
    }
  }
  return out;
}

CodeSet::CodeSet(Bounds sorted_bounds) : bounds(std::move(sorted_bounds)) {
  for (uint32_t c = 0; c < 128; ++c) {
    if (contains_wide(c)) ascii[c >> 6] |= uint64_t{1} << (c & 63);
  }
}

bool CodeSet::contains_wide(uint32_t code) const {
  return (std::upper_bound(bounds.begin(), bounds.end(), code) - bounds.begin()) % 2 == 1;
}

}  // namespace ix
