// Split patterns applied to a text, and the five behaviors.
#include "text/split.h"

#include <algorithm>

#include "core/error.h"
#include "text/utf8.h"

namespace ix {

SplitPattern SplitPattern::literal(std::string_view text) {
  if (text.empty()) fail("IX_TOKENIZER", "a split pattern is empty");
  SplitPattern out;
  out.literal_ = text;
  return out;
}

SplitPattern SplitPattern::regex(std::string_view pattern, bool allow_published) {
  SplitPattern out;
  if (allow_published) out.published_ = published_matcher(pattern);
  if (out.published_ == nullptr) out.regex_ = std::make_shared<const Regex>(pattern);
  return out;
}

void SplitPattern::cut(std::string_view text, std::vector<Cut>& cuts) const {
  size_t done = 0;  // everything before is in `cuts`
  const auto add = [&](size_t start, size_t end) {
    if (start > done) cuts.push_back({done, start, false});
    cuts.push_back({start, end, true});
    done = end;
  };
  if (published_ != nullptr) {
    for (size_t at = 0; at < text.size();) {
      const size_t end = published_(text, at);
      if (end > at) {
        add(at, end);
        at = end;
      } else {
        at += decode_utf8(text, at).length;
      }
    }
  } else if (regex_ != nullptr) {
    RegexSearch search(*regex_, text);
    size_t start, end, last_end = std::string_view::npos;
    for (size_t at = 0; at < text.size() && search.next(at, &start, &end);) {
      if (start == end && start == text.size()) break;
      if (end > start || start != last_end) add(start, end);  // an empty match cuts, but not right after another
      at = end > start ? end : start + decode_utf8(text, start).length;
      last_end = end;
    }
  } else {
    for (size_t at; (at = text.find(literal_, done)) != std::string_view::npos;) add(at, at + literal_.size());
  }
  if (done < text.size()) cuts.push_back({done, text.size(), false});
}

void apply_behavior(SplitBehavior behavior, bool invert, std::vector<Cut>& cuts) {
  if (invert) {
    for (Cut& cut : cuts) cut.match = !cut.match;
  }
  if (behavior == SplitBehavior::kIsolated) return;
  if (behavior == SplitBehavior::kRemoved) {
    std::erase_if(cuts, [](const Cut& cut) { return cut.match; });
    return;
  }
  const bool backwards = behavior == SplitBehavior::kMergedWithNext;
  if (backwards) std::reverse(cuts.begin(), cuts.end());
  size_t kept = 0;
  bool previous_match = false;
  for (const Cut cut : cuts) {
    const bool join = kept > 0 && (behavior == SplitBehavior::kContiguous ? cut.match == previous_match
                                                                          : cut.match && !previous_match);
    previous_match = cut.match;
    if (!join) {
      cuts[kept++] = cut;
    } else if (backwards) {
      cuts[kept - 1].start = cut.start;
    } else {
      cuts[kept - 1].end = cut.end;
    }
  }
  cuts.resize(kept);
  if (backwards) std::reverse(cuts.begin(), cuts.end());
}

}  // namespace ix
