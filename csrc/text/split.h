// A Split pattern: literal text, a published pattern with a matcher of its own, or any pattern by the regex engine;
// and what a pre-tokenizer does with the matches.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/regex.h"

namespace ix {

// A stretch of the text between two cuts. All cuts of a text cover it without gaps; matches may be empty.
struct Cut {
  size_t start, end;
  bool match;
};

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Merges and drops cuts as the behavior says; `match` flags of the result mean nothing.
void apply_behavior(SplitBehavior behavior, bool invert, std::vector<Cut>& cuts);

class SplitPattern {
 public:
  static SplitPattern literal(std::string_view text);
  static SplitPattern regex(std::string_view pattern, bool allow_published = true);  // false: always the engine (tests)
  // Appends cuts that cover `text` (valid UTF-8).
  void cut(std::string_view text, std::vector<Cut>& cuts) const;

 private:
  using Matcher = size_t (*)(std::string_view text, size_t at);  // end of the match at `at`, or `at` for none
  Matcher published_ = nullptr;
  std::string literal_;
  std::shared_ptr<const Regex> regex_;
};

// The matcher of a published pattern, null if there is none of its own for it.
size_t (*published_matcher(std::string_view pattern))(std::string_view text, size_t at);

namespace patterns {
// The pattern texts of the families, as in their tokenizer.json files.
extern const char kGpt2[], kLlama3[], kQwen2[], kO200k[], kDeepseekV3[];
}  // namespace patterns

}  // namespace ix
