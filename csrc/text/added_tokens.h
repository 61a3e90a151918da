// Added tokens: texts that become a token before the model sees the rest (special tokens, and ordinary ones).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/normalizer.h"
#include "text/trie.h"

namespace ix {

struct AddedToken {
  std::string text;
  uint32_t id = 0;
  bool special = false;                 // skipped when decoding, unless asked for
  bool single_word = false;             // only between word borders
  bool lstrip = false, rstrip = false;  // takes the white space beside it
  bool normalized = false;              // looked for in the normalized text
};

// A range of bytes in which control tokens stay text.
struct PlainRange {
  size_t start, end;
};

// A stretch of text, or a token found in it.
struct Section {
  std::string_view text;
  uint32_t id;  // kNoToken: text
};

class AddedTokens {
 public:
  AddedTokens() = default;
  AddedTokens(std::vector<AddedToken> tokens, const std::vector<NormalizeStep>& normalizer);
  // Cuts text at the tokens of the raw or of the normalized text. Control tokens (special ones and those that look
  // like it, <|...|> and the like) are not found where they touch one of the ranges, which are in order.
  void cut(std::string_view text, bool normalized, const std::vector<PlainRange>& plain,
           std::vector<Section>& sections) const;
  bool is_control(size_t index) const { return control_[index]; }
  const std::vector<AddedToken>& list() const { return tokens_; }

 private:
  std::vector<AddedToken> tokens_;
  std::vector<bool> control_;
  Trie raw_, normalized_;  // text -> index into tokens_
};

}  // namespace ix
