// Sets of code points as sorted [start, end) boundaries, and the operations of character classes on them.
#pragma once
#include <cstdint>
#include <vector>

namespace ix {

using Bounds = std::vector<uint32_t>;  // [start, end, start, end, ...)

Bounds complement(const Bounds& set);
Bounds unite(const Bounds& a, const Bounds& b);
Bounds intersect(const Bounds& a, const Bounds& b);
Bounds ignore_case(const Bounds& set);  // with all case variants of its members

// A set to match against, with a bitmap for ASCII.
struct CodeSet {
  Bounds bounds;
  uint64_t ascii[2] = {0, 0};

  explicit CodeSet(Bounds sorted_bounds);
  bool contains(uint32_t code) const {
    return code < 128 ? (ascii[code >> 6] >> (code & 63) & 1) != 0 : contains_wide(code);
  }
  bool contains_wide(uint32_t code) const;
};

}  // namespace ix
