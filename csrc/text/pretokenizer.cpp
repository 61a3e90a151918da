// The pre-tokenizers of tokenizer.json.
#include "text/pretokenizer.h"

#include "core/error.h"
#include "text/normalizer.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace ix {
namespace {

// cut(text, cuts) appends cuts that cover a piece's text; the pieces become what the behavior leaves of them.
template <class CutText>
PretokenizeStep cut_step(SplitBehavior behavior, bool invert, CutText cut) {
  return [behavior, invert, cut](Pieces& pieces) {
    pieces.next.clear();
    for (const Piece& piece : pieces.list) {
      pieces.cuts.clear();
      cut(piece.text, pieces.cuts);
      apply_behavior(behavior, invert, pieces.cuts);
      for (const Cut& c : pieces.cuts) {
        if (c.end > c.start)
          pieces.next.push_back({piece.text.substr(c.start, c.end - c.start), piece.at_start && c.start == 0});
      }
    }
    pieces.list.swap(pieces.next);
  };
}

// Each character that fulfils `is` is a match by itself.
template <class Predicate>
PretokenizeStep character_step(SplitBehavior behavior, Predicate is) {
  return cut_step(behavior, false, [is](std::string_view text, std::vector<Cut>& cuts) {
    size_t done = 0;
    for_each_code(text, [&](uint32_t code, size_t at, uint32_t length) {
      if (!is(code)) return;
      if (at > done) cuts.push_back({done, at, false});
      cuts.push_back({at, at + length, true});
      done = at + length;
    });
    if (done < text.size()) cuts.push_back({done, text.size(), false});
  });
}

auto has_bit(uint8_t bit) {
  return [bit](uint32_t code) { return UnicodeTable::get().has(code, bit); };
}

// \w+|[^\w\s]+ with the letters of Rust's regular expressions.
void cut_words(std::string_view text, std::vector<Cut>& cuts) {
  int previous = -1;
  for_each_code(text, [&](uint32_t code, size_t at, uint32_t length) {
    const uint8_t bits = UnicodeTable::get()[code].bits;
    const int kind = (bits & kRustWordBit) != 0 ? 2 : (bits & kSpaceBit) != 0 ? 0 : 1;
    if (kind == previous) {
      cuts.back().end = at + length;
    } else {
      cuts.push_back({at, at + length, kind != 0});
    }
    previous = kind;
  });
}

// change(text, at_start) may replace the text of each piece.
template <class Change>
PretokenizeStep change_step(Change change) {
  return [change](Pieces& pieces) {
    for (Piece& piece : pieces.list) {
      std::string text(piece.text);
      if (change(text, piece.at_start)) piece.text = pieces.owned.emplace_back(std::move(text));
    }
  };
}

SplitBehavior behavior_of(std::string_view name) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  fail("IX_TOKENIZER", "the split behavior \"%.100s\" is unknown", std::string(name).c_str());
}

PrependScheme scheme_of(JsonValue spec) {
  if (spec["prepend_scheme"].is_null()) {
    return spec.boolean_or("add_prefix_space", true) ? PrependScheme::kAlways : PrependScheme::kNever;
  }
  const std::string_view name = spec["prepend_scheme"].string("prepend_scheme");
  if (name == "always") return PrependScheme::kAlways;
  if (name == "first") return PrependScheme::kFirst;
  if (name == "never") return PrependScheme::kNever;
  fail("IX_TOKENIZER", "the prepend scheme \"%.100s\" is unknown", std::string(name).c_str());
}

void add_steps(JsonValue spec, std::vector<PretokenizeStep>& steps, bool* byte_level, int depth) {
  if (spec.is_null()) return;
  if (depth > 8) fail("IX_TOKENIZER", "pre-tokenizers are nested too deeply");
  const std::string type(spec["type"].string("pre_tokenizer type"));
  if (type == "Sequence") {
    spec["pretokenizers"].each("pretokenizers", [&](JsonValue step) { add_steps(step, steps, byte_level, depth + 1); });
  } else if (type == "ByteLevel") {
    *byte_level = true;
    if (spec.boolean_or("add_prefix_space", true)) {
      steps.push_back(
          change_step([](std::string& text, bool) { return !text.starts_with(' ') && (text.insert(0, " "), true); }));
    }
    if (spec.boolean_or("use_regex", true)) {
      steps.push_back(split_step(SplitPattern::regex(patterns::kGpt2), SplitBehavior::kIsolated, false));
    }
  } else if (type == "Split") {
    const JsonValue literal = spec["pattern"]["String"];
    steps.push_back(split_step(literal.is_string() ? SplitPattern::literal(literal.string("pattern"))
                                                   : SplitPattern::regex(spec["pattern"]["Regex"].string("pattern")),
                               behavior_of(spec["behavior"].string("behavior")), spec.boolean_or("invert", false)));
  } else if (type == "Digits") {
    const bool each = spec.boolean_or("individual_digits", false);
    steps.push_back(character_step(each ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, has_bit(kNumericBit)));
  } else if (type == "Punctuation") {
    steps.push_back(character_step(behavior_of(spec.string_or("behavior", "Isolated")), has_bit(kBertPunctuationBit)));
  } else if (type == "Whitespace") {
    steps.push_back(cut_step(SplitBehavior::kRemoved, true, cut_words));
  } else if (type == "WhitespaceSplit") {
    steps.push_back(character_step(SplitBehavior::kRemoved, has_bit(kSpaceBit)));
  } else if (type == "CharDelimiterSplit") {
    steps.push_back(
        split_step(SplitPattern::literal(spec["delimiter"].string("delimiter")), SplitBehavior::kRemoved, false));
  } else if (type == "BertPreTokenizer") {
    steps.push_back(bert_words_step());
  } else if (type == "Metaspace") {
    steps.push_back(metaspace_step(std::string(spec.string_or("replacement", "\u2581")), scheme_of(spec),
                                   spec.boolean_or("split", true)));
  } else {
    fail("IX_TOKENIZER", "the pre-tokenizer \"%.100s\" is not supported", type.c_str());
  }
}

}  // namespace

PretokenizeStep split_step(SplitPattern pattern, SplitBehavior behavior, bool invert) {
  return cut_step(behavior, invert,
                  [pattern](std::string_view text, std::vector<Cut>& cuts) { pattern.cut(text, cuts); });
}

PretokenizeStep bert_words_step() {
  return [spaces = character_step(SplitBehavior::kRemoved, has_bit(kSpaceBit)),
          punctuation = character_step(SplitBehavior::kIsolated, has_bit(kBertPunctuationBit))](Pieces& pieces) {
    spaces(pieces);
    punctuation(pieces);
  };
}

PretokenizeStep metaspace_step(std::string replacement, PrependScheme scheme, bool split) {
  if (replacement.empty()) fail("IX_TOKENIZER", "a Metaspace pre-tokenizer has an empty replacement");
  PretokenizeStep mark = change_step([replacement, scheme](std::string& text, bool at_start) {
    replace_all(text, " ", replacement);
    const bool prepend = scheme == PrependScheme::kAlways || (scheme == PrependScheme::kFirst && at_start);
    if (prepend && !text.starts_with(replacement)) text.insert(0, replacement);
    return true;
  });
  if (!split) return mark;
  return [mark,
          cut = split_step(SplitPattern::literal(replacement), SplitBehavior::kMergedWithNext, false)](Pieces& pieces) {
    mark(pieces);
    cut(pieces);
  };
}

std::vector<PretokenizeStep> make_pretokenizer(JsonValue spec, bool* byte_level) {
  std::vector<PretokenizeStep> steps;
  *byte_level = false;
  add_steps(spec, steps, byte_level, 0);
  return steps;
}

}  // namespace ix
