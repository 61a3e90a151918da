// A regular-expression engine for the Split patterns of tokenizer files: the part of Oniguruma's (Ruby) syntax that
// published tokenizers use, over UTF-8 text. Backtracking with a step budget, then with memory of failed states, so a
// search over a text stays linear in its length. Not here: captures, back-references, look-behind (refused by name).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/code_set.h"

namespace ix {

class Regex {
 public:
  explicit Regex(std::string_view pattern);  // throws IX_TOKENIZER naming what is wrong or unsupported

 private:
  friend class RegexCompiler;
  friend class RegexSearch;
  enum class Op : uint8_t {
    kSet,
    kSplit,
    kJump,
    kMatch,
    kAhead,
    kNotAhead,
    kAtomic,
    kLineStart,
    kLineEnd,
    kTextStart,
    kTextEnd,
    kWordBorder,
    kNotWordBorder
  };
  struct Step {
    Op op;
    uint32_t a, b;  // kSet: set; kSplit: first and second choice; kJump: target; groups: body, next; kSplit also has...
    uint32_t split;  // ...its number among the splits
  };

  std::vector<Step> steps_;
  std::vector<CodeSet> sets_;
  uint32_t num_splits_ = 0;
  bool first_bytes_[256] = {};  // bytes with which a match can begin
};

// One search through one text, which has to be valid UTF-8.
class RegexSearch {
 public:
  RegexSearch(const Regex& regex, std::string_view text);
  // The first match that starts at or after `from`; false when there is none.
  bool next(size_t from, size_t* start, size_t* end);

 private:
  struct Frame {
    uint32_t step;  // kFailed bit: all ways on from this split have failed
    size_t at;
  };
  static constexpr uint32_t kFailed = 0x80000000;
  size_t run(uint32_t step, size_t at);  // end of the match or npos

  const Regex& regex_;
  std::string_view text_;
  std::vector<Frame> stack_;
  std::vector<uint64_t> failed_;  // bits [split, position], once the budget is spent
  bool remember_ = false;
  uint64_t steps_left_;
};

}  // namespace ix
