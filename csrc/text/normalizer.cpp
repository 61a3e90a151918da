// The normalizers of tokenizer.json and of SentencePiece models.
#include "text/normalizer.h"

#include <cstring>
#include <memory>

#include "core/error.h"
#include "text/split.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace ix {
namespace {

// A step that treats each code point by itself: visit(code, out) appends what it becomes.
template <class Visit>
NormalizeStep per_code(Visit visit) {
  return [visit](std::string& text) {
    std::string out;
    out.reserve(text.size());
    for_each_code(text, [&](uint32_t code, size_t, uint32_t) { visit(code, out); });
    text = std::move(out);
  };
}

NormalizeStep form_step(NormalForm form) {
  return [form](std::string& text) { text = normalize(text, form); };
}

NormalizeStep strip_step(bool left, bool right) {
  return [left, right](std::string& text) {
    const UnicodeTable& table = UnicodeTable::get();
    size_t start = 0, end = text.size();
    while (left && start < end) {
      const CodePoint c = decode_utf8(text, start);
      if (!table.has(c.value, kSpaceBit)) break;
      start += c.length;
    }
    while (right && end > start) {
      const size_t last = previous_code(text, end);
      if (!table.has(decode_utf8(text, last).value, kSpaceBit)) break;
      end = last;
    }
    text = text.substr(start, end - start);
  };
}

NormalizeStep pattern_step(SplitPattern pattern, std::string to) {
  return [pattern, to](std::string& text) {
    std::vector<Cut> cuts;
    pattern.cut(text, cuts);
    std::string out;
    for (const Cut& cut : cuts) out += cut.match ? to : text.substr(cut.start, cut.end - cut.start);
    text = std::move(out);
  };
}

void append_nmt(uint32_t c, std::string& out) {
  if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F) return;
  const bool space = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                     c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
  append_utf8(out, space ? ' ' : c);
}

bool is_chinese(uint32_t c) {  // as BERT has it, the gap at U+2B820 included
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0x2F800 && c <= 0x2FA1F);
}

std::string decode_base64(std::string_view text) {
  std::string out;
  uint32_t bits = 0, count = 0;
  for (const char c : text) {
    if (c == '=') break;
    const uint32_t value = c >= 'A' && c <= 'Z'   ? static_cast<uint32_t>(c - 'A')
                           : c >= 'a' && c <= 'z' ? static_cast<uint32_t>(c - 'a' + 26)
                           : c >= '0' && c <= '9' ? static_cast<uint32_t>(c - '0' + 52)
                           : c == '+'             ? 62
                           : c == '/'             ? 63
                                                  : 64;
    if (value == 64) fail("IX_TOKENIZER", "precompiled_charsmap is not valid base64");
    bits = bits << 6 | value;
    count += 6;
    if (count >= 8) out += static_cast<char>(bits >> (count -= 8));
  }
  return out;
}

// SentencePiece's normalization map: a Darts double-array trie of prefixes, then the NUL-terminated replacements.
class Charsmap {
 public:
  explicit Charsmap(std::string_view bytes) {
    uint32_t num_bytes = 0;
    if (bytes.size() >= 4) std::memcpy(&num_bytes, bytes.data(), 4);
    if (bytes.size() < 4 || num_bytes == 0 || num_bytes % 4 != 0 || num_bytes > bytes.size() - 4) {
      fail("IX_TOKENIZER", "the precompiled character map is damaged");
    }
    units_.resize(num_bytes / 4);
    std::memcpy(units_.data(), bytes.data() + 4, num_bytes);
    replacements_ = bytes.substr(4 + num_bytes);
  }

  std::string apply(std::string_view text) const {
    std::string out;
    for (size_t at = 0; at < text.size();) {
      size_t length = 0;
      const uint32_t value = longest_prefix(text.substr(at), &length);
      if (length > 0 && value < replacements_.size()) {
        out.append(replacements_.c_str() + value);
      } else {
        length = decode_utf8(text, at).length;
        out.append(text.substr(at, length));
      }
      at += length;
    }
    return out;
  }

 private:
  static uint32_t offset(uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }
  uint32_t longest_prefix(std::string_view text, size_t* length) const {
    uint32_t value = 0, node = offset(units_[0]);
    for (size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<uint8_t>(text[i]);
      node ^= byte;
      if (byte == 0 || node >= units_.size() || (units_[node] & 0x800000FF) != byte) break;
      const uint32_t unit = units_[node];
      node ^= offset(unit);
      if (node >= units_.size()) break;
      if ((unit & 0x100) != 0) {
        value = units_[node] & 0x7FFFFFFF;
        *length = i + 1;
      }
    }
    return value;
  }

  std::vector<uint32_t> units_;
  std::string replacements_;
};

void add_steps(JsonValue spec, std::vector<NormalizeStep>& steps, int depth) {
  if (spec.is_null()) return;
  if (depth > 8) fail("IX_TOKENIZER", "normalizers are nested too deeply");
  const std::string type(spec["type"].string("normalizer type"));
  if (type == "Sequence") {
    spec["normalizers"].each("normalizers", [&](JsonValue step) { add_steps(step, steps, depth + 1); });
  } else if (type == "NFC") {
    steps.push_back(form_step(NormalForm::kNfc));
  } else if (type == "NFD") {
    steps.push_back(form_step(NormalForm::kNfd));
  } else if (type == "NFKC") {
    steps.push_back(form_step(NormalForm::kNfkc));
  } else if (type == "NFKD") {
    steps.push_back(form_step(NormalForm::kNfkd));
  } else if (type == "Lowercase") {
    steps.push_back(per_code([](uint32_t code, std::string& out) { append_lowercase(out, code); }));
  } else if (type == "StripAccents") {
    steps.push_back(per_code([](uint32_t code, std::string& out) {
      if (!is_accent(code)) append_utf8(out, code);
    }));
  } else if (type == "Nmt") {
    steps.push_back(per_code(append_nmt));
  } else if (type == "Strip") {
    steps.push_back(strip_step(spec.boolean_or("strip_left", true), spec.boolean_or("strip_right", true)));
  } else if (type == "Prepend") {
    steps.push_back(prepend_step(std::string(spec["prepend"].string("prepend"))));
  } else if (type == "Replace") {
    const std::string to(spec["content"].string("content"));
    const JsonValue literal = spec["pattern"]["String"];
    if (literal.is_string()) {
      steps.push_back(replace_step(std::string(literal.string("pattern")), to));
    } else {
      steps.push_back(pattern_step(SplitPattern::regex(spec["pattern"]["Regex"].string("pattern")), to));
    }
  } else if (type == "BertNormalizer") {
    const bool lowercase = spec.boolean_or("lowercase", true);
    steps.push_back(bert_step(spec.boolean_or("clean_text", true), spec.boolean_or("handle_chinese_chars", true),
                              spec.boolean_or("strip_accents", lowercase), lowercase));
  } else if (type == "Precompiled") {
    const std::string_view map =
        spec["precompiled_charsmap"].is_null() ? "" : spec["precompiled_charsmap"].string("charsmap");
    if (!map.empty()) steps.push_back(charsmap_step(decode_base64(map)));
  } else {
    fail("IX_TOKENIZER", "the normalizer \"%.100s\" is not supported", type.c_str());
  }
}

}  // namespace

NormalizeStep prepend_step(std::string prefix) {
  return [prefix = std::move(prefix)](std::string& text) {
    if (!text.empty()) text.insert(0, prefix);
  };
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  size_t done = 0, at = text.find(from);
  if (at == std::string::npos) return;
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  for (; at != std::string::npos; at = text.find(from, done)) {
    out.append(text, done, at - done).append(to);
    done = at + from.size();
  }
  text = std::move(out.append(text, done));
}

NormalizeStep replace_step(std::string from, std::string to) {
  if (from.empty()) fail("IX_TOKENIZER", "a Replace step has an empty pattern");
  return [from = std::move(from), to = std::move(to)](std::string& text) { replace_all(text, from, to); };
}

NormalizeStep charsmap_step(std::string_view charsmap) {
  return [map = std::make_shared<const Charsmap>(charsmap)](std::string& text) { text = map->apply(text); };
}

NormalizeStep bert_step(bool clean_text, bool chinese, bool strip_accents, bool lowercase) {
  return [=](std::string& text) {
    std::string out;
    for_each_code(text, [&](uint32_t code, size_t, uint32_t) {
      if (clean_text && is_bert_control(code)) return;
      if (clean_text && is_bert_space(code)) code = ' ';
      const bool spaced = chinese && is_chinese(code);
      if (spaced) out += ' ';
      append_utf8(out, code);
      if (spaced) out += ' ';
    });
    if (strip_accents) {
      std::string bare;
      for_each_code(normalize(out, NormalForm::kNfd), [&](uint32_t code, size_t, uint32_t) {
        if (!is_bert_accent(code)) append_utf8(bare, code);
      });
      out = std::move(bare);
    }
    text.clear();
    if (!lowercase) {
      text = std::move(out);
    } else {
      for_each_code(out, [&](uint32_t code, size_t, uint32_t) { append_lowercase(text, code); });
    }
  };
}

void collapse_spaces(std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c != ' ' || (!out.empty() && out.back() != ' ')) out += c;
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  text = std::move(out);
}

std::vector<NormalizeStep> make_normalizer(JsonValue spec) {
  std::vector<NormalizeStep> steps;
  add_steps(spec, steps, 0);
  return steps;
}

}  // namespace ix
