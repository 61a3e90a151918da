// Hand-compiled matchers of the split patterns that most published models use. Each must equal the regex engine on the
// same pattern (test/native/text_split.cpp compares them on random text); order of the branches = order of
// alternatives.
#include <array>

#include "text/split.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace ix {

namespace patterns {
const char kGpt2[] = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const char kLlama3[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char kQwen2[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char kO200k[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char kDeepseekV3[] = R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^)"
                           "\r\n"
                           R"(\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[)"
                           "\r\n"
                           R"(]*|\s*[)"
                           "\r\n"
                           R"(]+|\s+(?!\S)|\s+)";
}  // namespace patterns

namespace {

constexpr uint32_t kSpace = 1u << 30, kNewline = 1u << 31;  // beside the category bits
constexpr uint32_t kUpperish =
    mask_of(Category::Lu) | mask_of(Category::Lt) | mask_of(Category::Lm) | mask_of(Category::Lo) | kMark;
constexpr uint32_t kLowerish = mask_of(Category::Ll) | mask_of(Category::Lm) | mask_of(Category::Lo) | kMark;

struct Char {
  uint32_t mask = 0;  // 0 at the end of the text
  uint32_t length = 0;
  bool is(uint32_t bits) const { return (mask & bits) != 0; }
};

uint32_t wide_mask(uint32_t code) {
  const CodeProperties p = UnicodeTable::get()[code];
  return 1u << p.category | ((p.bits & kSpaceBit) != 0 ? kSpace : 0) | (code == '\n' || code == '\r' ? kNewline : 0);
}

std::array<uint32_t, 128> ascii_masks() {
  std::array<uint32_t, 128> out;
  for (uint32_t c = 0; c < 128; ++c) out[c] = wide_mask(c);
  return out;
}

Char read(std::string_view text, size_t at) {
  static const std::array<uint32_t, 128> ascii = ascii_masks();
  if (at >= text.size()) return {};
  const auto byte = static_cast<uint8_t>(text[at]);
  if (byte < 128) return {ascii[byte], 1};
  const CodePoint c = decode_utf8(text, at);
  return {wide_mask(c.value), c.length};
}

// End of the longest run from `at` of at most `most` characters that have a bit of `bits` (or, negated, none of them).
template <bool kNegated = false>
size_t run_of(std::string_view text, size_t at, uint32_t bits, size_t most = SIZE_MAX) {
  for (; most > 0; --most) {
    const Char c = read(text, at);
    if (c.length == 0 || c.is(bits) == kNegated) break;
    at += c.length;
  }
  return at;
}

bool has_char(std::string_view text, size_t at, char c) { return at < text.size() && text[at] == c; }

// 's 't 're 've 'm 'll 'd; returns `at` when there is none.
template <bool kIgnoreCase>
size_t contraction(std::string_view text, size_t at) {
  if (!has_char(text, at, '\'') || at + 1 >= text.size()) return at;
  const auto letter = [&](size_t i) -> char {
    if (i >= text.size()) return 0;
    const char c = text[i];
    return kIgnoreCase && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  const char a = letter(at + 1), b = letter(at + 2);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return at + 3;
  if (kIgnoreCase && text.substr(at + 1, 2) == "\u017F") return at + 3;  // the long s folds to s
  return at;
}

// \s+(?!\S)|\s+, and before them \s*[\r\n]+ if asked.
template <bool kNewlines>
size_t white_space(std::string_view text, size_t at) {
  size_t end = at, last = at, newline_end = at;
  for (Char c; (c = read(text, end)).is(kSpace);) {
    last = end;
    end += c.length;
    if (c.is(kNewline)) newline_end = end;
  }
  if (kNewlines && newline_end > at) return newline_end;
  return end == text.size() || last == at ? end : last;
}

//  ?[^\s\p{L}\p{N}]+ ; returns `at` when it does not match.
size_t symbols(std::string_view text, size_t at) {
  const size_t start = has_char(text, at, ' ') ? at + 1 : at;
  const size_t end = run_of<true>(text, start, kSpace | kLetter | kNumber);
  return end > start ? end : at;
}

size_t newlines(std::string_view text, size_t at) { return run_of(text, at, kNewline); }

size_t match_gpt2(std::string_view text, size_t at) {
  if (const size_t end = contraction<false>(text, at); end > at) return end;
  const size_t start = has_char(text, at, ' ') ? at + 1 : at;
  const Char c = read(text, start);
  if (c.is(kLetter)) return run_of(text, start, kLetter);
  if (c.is(kNumber)) return run_of(text, start, kNumber);
  if (const size_t end = symbols(text, at); end > at) return end;
  return white_space<false>(text, at);
}

template <size_t kDigits>
size_t match_llama3(std::string_view text, size_t at) {
  if (const size_t end = contraction<true>(text, at); end > at) return end;
  const Char c = read(text, at);
  if (c.is(kLetter)) return run_of(text, at, kLetter);
  if (c.is(kNumber)) return run_of(text, at, kNumber, kDigits);
  if (!c.is(kNewline)) {
    if (read(text, at + c.length).is(kLetter)) return run_of(text, at + c.length, kLetter);
    if (const size_t end = symbols(text, at); end > at) return newlines(text, end);
  }
  return white_space<true>(text, at);
}

// [upper]*[lower]+ with the engine's backtracking; `upper_end` is where [upper]* ends at first.
size_t upper_lower(std::string_view text, size_t at, size_t* upper_end) {
  size_t end = at, both_end = at;  // both_end: after the last character that is in both sets
  for (Char c; (c = read(text, end)).is(kUpperish);) {
    end += c.length;
    if (c.is(kLowerish)) both_end = end;
  }
  *upper_end = end;
  const size_t lower_end = run_of(text, end, kLowerish);
  return lower_end > end ? lower_end : both_end;
}

size_t match_o200k(std::string_view text, size_t at) {
  const Char c = read(text, at);
  if (c.is(kNumber)) return run_of(text, at, kNumber, 3);
  const bool lead = !c.is(kNewline | kLetter);
  const size_t after_lead = at + c.length;
  size_t led_upper = after_lead, upper;
  if (lead) {
    if (const size_t end = upper_lower(text, after_lead, &led_upper); end > after_lead)
      return contraction<true>(text, end);
  }
  if (const size_t end = upper_lower(text, at, &upper); end > at) return contraction<true>(text, end);
  if (lead && led_upper > after_lead) return contraction<true>(text, led_upper);
  if (upper > at) return contraction<true>(text, upper);
  if (size_t end = symbols(text, at); end > at) {
    while (has_char(text, end, '/') || has_char(text, end, '\r') || has_char(text, end, '\n')) ++end;
    return end;
  }
  return white_space<true>(text, at);
}

size_t match_deepseek_v3(std::string_view text, size_t at) {
  const auto ascii_letters = [&](size_t i) {
    while (i < text.size() && (text[i] | 32) >= 'a' && (text[i] | 32) <= 'z') ++i;
    return i;
  };
  const Char c = read(text, at);
  if (static_cast<uint8_t>(text[at]) < 128 && c.is(kPunctuation | kSymbol)) {
    if (const size_t end = ascii_letters(at + 1); end > at + 1) return end;
  }
  const size_t next = at + c.length;
  if (!c.is(kNewline | kLetter | kPunctuation | kSymbol) && read(text, next).is(kLetter | kMark)) {
    return run_of(text, next, kLetter | kMark);
  }
  if (c.is(kLetter | kMark)) return run_of(text, at, kLetter | kMark);
  const size_t start = has_char(text, at, ' ') ? next : at;
  if (const size_t end = run_of(text, start, kPunctuation | kSymbol); end > start) return newlines(text, end);
  return c.is(kSpace) ? white_space<true>(text, at) : at;
}

}  // namespace

size_t (*published_matcher(std::string_view pattern))(std::string_view text, size_t at) {
  if (pattern == patterns::kGpt2) return match_gpt2;
  if (pattern == patterns::kLlama3) return match_llama3<3>;
  if (pattern == patterns::kQwen2) return match_llama3<1>;
  if (pattern == patterns::kO200k) return match_o200k;
  if (pattern == patterns::kDeepseekV3) return match_deepseek_v3;
  return nullptr;
}

}  // namespace ix
