// Lookups in the generated tables: properties, case, scripts. Normalization forms are in normal_form.cpp.
#include "text/unicode.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "text/unicode_data.h"
#include "text/utf8.h"

namespace ix {
namespace {

using namespace unicode_data;

template <size_t N>
bool in_set(const uint32_t (&bounds)[N], uint32_t code) {
  return (std::upper_bound(bounds, bounds + N, code) - bounds) % 2 == 1;
}

// Value of `code` in a sorted array of (code, value) pairs, or the code itself.
template <size_t N>
uint32_t map_pair(const uint32_t (&pairs)[N], uint32_t code) {
  size_t low = 0, high = N / 2;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (pairs[2 * middle] < code) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low < N / 2 && pairs[2 * low] == code ? pairs[2 * low + 1] : code;
}

struct NamedCategories {
  const char* name;
  CategoryMask mask;
};

constexpr CategoryMask bit(int index) { return 1u << index; }
constexpr NamedCategories kCategoryNames[] = {
    {"l", kLetter},
    {"m", kMark},
    {"n", kNumber},
    {"p", kPunctuation},
    {"s", kSymbol},
    {"z", kSeparator},
    {"c", kOther},
    {"letter", kLetter},
    {"mark", kMark},
    {"number", kNumber},
    {"punctuation", kPunctuation},
    {"symbol", kSymbol},
    {"separator", kSeparator},
    {"other", kOther},
    {"lu", bit(0)},
    {"ll", bit(1)},
    {"lt", bit(2)},
    {"lm", bit(3)},
    {"lo", bit(4)},
    {"mn", bit(5)},
    {"mc", bit(6)},
    {"me", bit(7)},
    {"nd", bit(8)},
    {"nl", bit(9)},
    {"no", bit(10)},
    {"pc", bit(11)},
    {"pd", bit(12)},
    {"ps", bit(13)},
    {"pe", bit(14)},
    {"pi", bit(15)},
    {"pf", bit(16)},
    {"po", bit(17)},
    {"sm", bit(18)},
    {"sc", bit(19)},
    {"sk", bit(20)},
    {"so", bit(21)},
    {"zs", bit(22)},
    {"zl", bit(23)},
    {"zp", bit(24)},
    {"cc", bit(25)},
    {"cf", bit(26)},
    {"cs", bit(27)},
    {"co", bit(28)},
    {"cn", bit(29)},
};

template <size_t N>
std::vector<uint32_t> to_vector(const uint32_t (&bounds)[N]) {
  return {bounds, bounds + N};
}

}  // namespace

UnicodeTable::UnicodeTable() {
  std::vector<CodeProperties> flat(0x110000);
  for (size_t i = 0; i < std::size(kCategoryRuns); ++i) {
    const uint32_t end = i + 1 < std::size(kCategoryRuns) ? kCategoryRuns[i + 1] >> 5 : 0x110000;
    for (uint32_t c = kCategoryRuns[i] >> 5; c < end; ++c) flat[c].category = kCategoryRuns[i] & 31;
  }
  const auto mark = [&](const uint32_t* bounds, size_t count, uint8_t bit) {
    for (size_t i = 0; i + 1 < count; i += 2) {
      for (uint32_t c = bounds[i]; c < bounds[i + 1]; ++c) flat[c].bits |= bit;
    }
  };
  mark(kWhiteSpace, std::size(kWhiteSpace), kSpaceBit);
  mark(kWord, std::size(kWord), kWordBit);
  mark(kRustWord, std::size(kRustWord), kRustWordBit);
  mark(kBertPunctuation, std::size(kBertPunctuation), kBertPunctuationBit);
  mark(kNumeric, std::size(kNumeric), kNumericBit);
  std::map<std::string, uint16_t> seen;
  for (uint32_t page = 0; page < 0x1100; ++page) {
    std::string key(reinterpret_cast<const char*>(&flat[page * 256]), 256 * sizeof(CodeProperties));
    const auto [found, fresh] = seen.emplace(std::move(key), static_cast<uint16_t>(seen.size()));
    if (fresh) pages_.insert(pages_.end(), flat.begin() + page * 256, flat.begin() + (page + 1) * 256);
    page_of_[page] = found->second;
  }
}

const UnicodeTable& UnicodeTable::get() {
  static const UnicodeTable table;
  return table;
}

void append_lowercase(std::string& out, uint32_t code) {
  if (code == 0x130) {
    out += "i\xCC\x87";  // the only one with two code points
  } else if (code < 0x80) {
    out += static_cast<char>(code >= 'A' && code <= 'Z' ? code + 32 : code);
  } else {
    append_utf8(out, map_pair(kLower, code));
  }
}

uint32_t fold_case(uint32_t code) {
  const uint32_t folded = map_pair(kFoldExtra, code);
  return folded == code ? map_pair(kLower, code) : folded;
}

std::vector<uint32_t> case_variants(uint32_t code) {
  const uint32_t folded = fold_case(code);
  std::vector<uint32_t> out{code};
  const auto add = [&](uint32_t variant) {
    if (fold_case(variant) == folded && std::find(out.begin(), out.end(), variant) == out.end()) out.push_back(variant);
  };
  add(folded);
  for (size_t i = 0; i < std::size(kLower); i += 2) add(kLower[i]);
  for (size_t i = 0; i < std::size(kFoldExtra); i += 2) add(kFoldExtra[i]);
  return out;
}

bool is_accent(uint32_t code) { return in_set(kAccent, code); }
bool is_bert_accent(uint32_t code) { return in_set(kBertAccent, code); }
bool is_bert_control(uint32_t code) { return in_set(kBertControl, code); }
bool is_bert_space(uint32_t code) { return in_set(kBertSpace, code); }

std::vector<uint32_t> category_set(CategoryMask mask) {
  std::vector<uint32_t> out;
  bool inside = false;
  for (const uint32_t run : kCategoryRuns) {
    const bool now = (mask >> (run & 31) & 1) != 0;
    if (now != inside) out.push_back(run >> 5);
    inside = now;
  }
  if (inside) out.push_back(0x110000);
  return out;
}

std::vector<uint32_t> white_space_set() { return to_vector(kWhiteSpace); }
std::vector<uint32_t> word_set() { return to_vector(kWord); }

std::vector<uint32_t> unicode_set(std::string_view name) {
  std::string key;
  for (const char c : name) {
    if (c == ' ' || c == '-' || c == '_') continue;
    key += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  }
  if (key.starts_with("script=")) key.erase(0, 7);
  if (key.starts_with("sc=")) key.erase(0, 3);
  for (const NamedCategories& c : kCategoryNames) {
    if (key == c.name) return category_set(c.mask);
  }
  for (const NamedSet& script : kScripts) {
    if (key == script.name) return {script.bounds, script.bounds + script.count};
  }
  if (key == "whitespace" || key == "space") return white_space_set();
  if (key == "word") return word_set();
  return {};
}

}  // namespace ix
