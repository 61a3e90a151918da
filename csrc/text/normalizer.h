// Normalizers: what is done to the text before it is split. A normalizer is a list of steps, each a pure function.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/json.h"

namespace ix {

using NormalizeStep = std::function<void(std::string& text)>;  // text: valid UTF-8, before and after

// The steps of a "normalizer" of tokenizer.json (null: none); throws IX_TOKENIZER for unknown kinds.
std::vector<NormalizeStep> make_normalizer(JsonValue spec);

NormalizeStep prepend_step(std::string prefix);  // an empty text stays empty
NormalizeStep replace_step(std::string from, std::string to);
NormalizeStep charsmap_step(std::string_view charsmap);  // SentencePiece's precompiled map, binary
NormalizeStep bert_step(bool clean_text, bool chinese, bool strip_accents, bool lowercase);
void replace_all(std::string& text, std::string_view from, std::string_view to);  // `from` is not empty
void collapse_spaces(std::string& text);  // no spaces at the ends, single ones inside

}  // namespace ix
