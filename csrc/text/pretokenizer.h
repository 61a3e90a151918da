// Pre-tokenizers: how the normalized text is cut into the pieces that the model encodes one by one.
#pragma once
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/json.h"
#include "text/split.h"

namespace ix {

struct Piece {
  std::string_view text;  // into the section or into Pieces::owned
  bool at_start;          // begins where the whole text begins
};

struct Pieces {
  std::vector<Piece> list;
  std::deque<std::string> owned;  // texts changed by a step
  std::vector<Piece> next;        // working memory
  std::vector<Cut> cuts;
};

using PretokenizeStep = std::function<void(Pieces& pieces)>;

// The steps of a "pre_tokenizer" of tokenizer.json (null: none). *byte_level: whether one of them is ByteLevel.
std::vector<PretokenizeStep> make_pretokenizer(JsonValue spec, bool* byte_level);

PretokenizeStep split_step(SplitPattern pattern, SplitBehavior behavior, bool invert);
PretokenizeStep bert_words_step();
enum class PrependScheme { kAlways, kFirst, kNever };
PretokenizeStep metaspace_step(std::string replacement, PrependScheme scheme, bool split);

}  // namespace ix
