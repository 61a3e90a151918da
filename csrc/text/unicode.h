// Unicode properties, case and normalization forms, as the reference tokenizers have them (unicode_tables.inc).
// All functions are thread-safe; the lookup tables are expanded from their runs on first use.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ix {

enum class Category : uint8_t {
  Lu,
  Ll,
  Lt,
  Lm,
  Lo,
  Mn,
  Mc,
  Me,
  Nd,
  Nl,
  No,
  Pc,
  Pd,
  Ps,
  Pe,
  Pi,
  Pf,
  Po,
  Sm,
  Sc,
  Sk,
  So,
  Zs,
  Zl,
  Zp,
  Cc,
  Cf,
  Cs,
  Co,
  Cn
};

// A set of categories, one bit each.
using CategoryMask = uint32_t;
constexpr CategoryMask mask_of(Category c) { return 1u << static_cast<int>(c); }
constexpr CategoryMask kLetter = 0x1F, kMark = 0x7 << 5, kNumber = 0x7 << 8, kPunctuation = 0x7F << 11,
                       kSymbol = 0xF << 18, kSeparator = 0x7 << 22, kOther = 0x1F << 25;

// Bits of a code point beside its category. Words: of the regular expressions of Split patterns, and of Rust's.
enum : uint8_t { kSpaceBit = 1, kWordBit = 2, kBertPunctuationBit = 4, kNumericBit = 8, kRustWordBit = 16 };

struct CodeProperties {
  uint8_t category;
  uint8_t bits;
};

// Two-level table of all code points.
class UnicodeTable {
 public:
  static const UnicodeTable& get();
  CodeProperties operator[](uint32_t code) const {
    return code < 0x110000 ? pages_[page_of_[code >> 8] * 256u + (code & 0xFF)]
                           : CodeProperties{static_cast<uint8_t>(Category::Cn), 0};
  }
  CategoryMask mask(uint32_t code) const { return 1u << (*this)[code].category; }
  bool has(uint32_t code, uint8_t bit) const { return ((*this)[code].bits & bit) != 0; }

 private:
  UnicodeTable();
  uint16_t page_of_[0x1100];
  std::vector<CodeProperties> pages_;
};

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

std::string normalize(std::string_view text, NormalForm form);  // text: valid UTF-8
void append_lowercase(std::string& out, uint32_t code);
uint32_t fold_case(uint32_t code);                   // simple case folding
std::vector<uint32_t> case_variants(uint32_t code);  // all code points with the same simple folding, itself included
bool is_accent(uint32_t code);                       // what StripAccents removes
bool is_bert_accent(uint32_t code);
bool is_bert_control(uint32_t code);
bool is_bert_space(uint32_t code);

// Sorted [start, end) boundaries of a set named as in \p{...}: a category, a group of categories or a script
// (case, spaces, '-' and '_' do not count). Empty when the name is unknown.
std::vector<uint32_t> unicode_set(std::string_view name);
std::vector<uint32_t> category_set(CategoryMask mask);
std::vector<uint32_t> white_space_set();
std::vector<uint32_t> word_set();

}  // namespace ix
