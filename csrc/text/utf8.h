// UTF-8 one code point at a time, with the replacement rule of TextDecoder (one U+FFFD per maximal invalid part).
// Not here: properties of code points (unicode.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ix {

constexpr uint32_t kReplacement = 0xFFFD;

struct CodePoint {
  uint32_t value;   // kReplacement where the bytes are invalid
  uint32_t length;  // bytes read, at least 1
  bool valid;
  bool truncated;  // invalid only because the text ends here: more bytes could complete it
};

// The code point at text[at]; `at` must be inside.
inline CodePoint decode_utf8(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(at);
  if (lead < 0x80) return {lead, 1, true, false};
  uint32_t need, value;
  uint8_t low = 0x80,
          high = 0xBF;  // bounds of the second byte: no overlong forms, no surrogates, no more than U+10FFFF
  if (lead >= 0xC2 && lead <= 0xDF) {
    need = 1, value = lead & 0x1F;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    need = 2, value = lead & 0x0F;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    need = 3, value = lead & 0x07;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {kReplacement, 1, false, false};
  }
  for (uint32_t i = 1; i <= need; ++i) {
    if (at + i >= text.size()) return {kReplacement, i, false, true};
    const uint8_t next = byte(at + i);
    if (next < low || next > high) return {kReplacement, i, false, false};
    value = value << 6 | (next & 0x3F);
    low = 0x80, high = 0xBF;
  }
  return {value, need + 1, true, false};
}

inline void append_utf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    out += static_cast<char>(0x80 | (code >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

// The first code point of valid UTF-8, or kReplacement if there is none.
inline uint32_t first_code(std::string_view text) { return text.empty() ? kReplacement : decode_utf8(text, 0).value; }

// Start of the code point that ends at `end` (end > 0) in valid UTF-8.
inline size_t previous_code(std::string_view text, size_t end) {
  do {
    --end;
  } while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80);
  return end;
}

// Calls visit(code, start, length) for each code point of valid UTF-8.
template <class Visit>
void for_each_code(std::string_view text, Visit&& visit) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_utf8(text, at);
    visit(c.value, at, c.length);
    at += c.length;
  }
}

inline bool is_valid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    uint64_t eight;  // ASCII runs, eight bytes at a time
    while (at + 8 <= text.size() && (__builtin_memcpy(&eight, text.data() + at, 8), (eight & 0x8080808080808080u) == 0))
      at += 8;
    if (at == text.size()) break;
    const CodePoint c = decode_utf8(text, at);
    if (!c.valid) return false;
    at += c.length;
  }
  return true;
}

// The text with every invalid part replaced by U+FFFD.
inline std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for_each_code(text, [&](uint32_t code, size_t, uint32_t) { append_utf8(out, code); });
  return out;
}

}  // namespace ix
