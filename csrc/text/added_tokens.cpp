// Finding added tokens: leftmost, of those the longest.
#include "text/added_tokens.h"

#include "text/unicode.h"
#include "text/utf8.h"

namespace ix {
namespace {

bool looks_like_control(std::string_view text) {
  return (text.starts_with("<|") && text.ends_with("|>")) ||
         (text.starts_with("<\uFF5C") && text.ends_with("\uFF5C>")) ||
         (text.starts_with("<unused") && text.ends_with(">"));
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const std::vector<NormalizeStep>& normalizer)
    : tokens_(std::move(tokens)) {
  std::vector<std::pair<std::string_view, uint32_t>> raw, normalized;
  std::vector<std::string> texts;
  texts.reserve(tokens_.size());  // the views below stay valid
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    const AddedToken& token = tokens_[i];
    control_.push_back(token.special || looks_like_control(token.text));
    std::string& text = texts.emplace_back(token.text);
    if (token.normalized) {
      for (const NormalizeStep& step : normalizer) step(text);
    }
    // A control token that normalization leaves alone is found in the raw text, where ranges can protect it.
    const bool late = token.normalized && !(control_[i] && text == token.text);
    (late ? normalized : raw).emplace_back(text, i);
  }
  raw_ = Trie(std::move(raw));
  normalized_ = Trie(std::move(normalized));
}

void AddedTokens::cut(std::string_view text, bool normalized, const std::vector<PlainRange>& plain,
                      std::vector<Section>& sections) const {
  const Trie& trie = normalized ? normalized_ : raw_;
  const UnicodeTable& table = UnicodeTable::get();
  const auto has = [&](size_t at, uint8_t bit) { return table.has(decode_utf8(text, at).value, bit); };
  auto range = plain.begin();
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    if (!trie.can_start(static_cast<uint8_t>(text[at]))) {
      ++at;
      continue;
    }
    size_t end = at;
    uint32_t index = 0;
    trie.matches(text, at, [&](size_t match_end, uint32_t match) {
      end = match_end;
      index = match;
    });
    if (end == at) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[index];
    size_t start = at;
    at = end;
    while (range != plain.end() && range->end <= start) ++range;
    if (control_[index] && range != plain.end() && range->start < end) continue;
    if (token.single_word && ((start > 0 && has(previous_code(text, start), kRustWordBit)) ||
                              (end < text.size() && has(end, kRustWordBit)))) {
      continue;
    }
    if (token.lstrip) {
      for (size_t before; start > done && has(before = previous_code(text, start), kSpaceBit);) start = before;
    }
    if (token.rstrip) {
      while (end < text.size() && has(end, kSpaceBit)) end += decode_utf8(text, end).length;
    }
    if (start > done) sections.push_back({text.substr(done, start - done), kNoToken});
    sections.push_back({{}, token.id});
    at = done = end;
  }
  if (done < text.size()) sections.push_back({text.substr(done), kNoToken});
}

}  // namespace ix
