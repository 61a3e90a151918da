// Decoders: the exact bytes that a token stands for, given its text. A chain of per-token steps and one rule for the
// start of a sequence, so that streamed and whole decoding are the same thing.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/json.h"

namespace ix {

struct Decoder {
  // Changes a token's text; `first`: the token is the first of its sequence. The last step leaves bytes.
  std::vector<std::function<void(std::string& token, bool first)>> steps;
  std::string strip;         // stripped from the start of the sequence's text ...
  uint32_t strip_count = 0;  // ... at most so many times
  std::string word_end;      // token suffix that becomes a space before the next token
};

Decoder make_decoder(JsonValue spec);  // of tokenizer.json; null: tokens are joined by spaces
Decoder byte_level_decoder();
Decoder sentencepiece_decoder(bool strip_leading_space);
Decoder metaspace_decoder(std::string replacement, bool strip_first);
Decoder wordpiece_decoder(std::string prefix, bool cleanup);

}  // namespace ix
