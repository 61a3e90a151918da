// The JSON reader: an explicit stack instead of recursion, a depth limit, strict grammar (RFC 8259).
#include "text/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "text/utf8.h"

namespace ix {
namespace {

constexpr size_t kMaxDepth = 128;
constexpr size_t kMaxBytes = size_t{1} << 30;
constexpr uint32_t kNoNode = UINT32_MAX;

[[noreturn]] void wrong_type(const char* what, const char* wanted) {
  fail("IX_TOKENIZER", "%s: expected %s", what, wanted);
}

}  // namespace

Json::Json(std::string_view text) : text_(text) {
  if (text.size() > kMaxBytes)
    fail("IX_TOKENIZER", "the tokenizer's JSON has %zu bytes, more than %zu", text.size(), kMaxBytes);
  if (!is_valid_utf8(text)) fail("IX_TOKENIZER", "the tokenizer's JSON is not valid UTF-8");
  nodes_.reserve(text.size() / 16);
  parse();
}

void Json::fault(const char* why) const { fail("IX_TOKENIZER", "invalid JSON at byte %zu: %s", at_, why); }

void Json::skip_space() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
    ++at_;
}

void Json::parse() {
  std::vector<uint32_t> open;  // containers being read
  const auto word = [&](std::string_view literal, Kind kind) {
    if (text_.substr(at_, literal.size()) != literal) fault("unexpected character");
    at_ += literal.size();
    nodes_.push_back({kind, 0, {nullptr}});
  };
  const auto key = [&] {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != '"') fault("expected a member name");
    parse_string();
    skip_space();
    if (at_ >= text_.size() || text_[at_] != ':') fault("expected ':'");
    ++at_;
  };
  for (;;) {
    skip_space();
    if (at_ >= text_.size()) fault("unexpected end");
    const char c = text_[at_];
    if (c == '{' || c == '[') {
      if (open.size() >= kMaxDepth) fault("nested too deeply");
      const bool object = c == '{';
      const auto node = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({object ? Kind::kObject : Kind::kArray, 0, {nullptr}});
      ++at_;
      skip_space();
      if (at_ < text_.size() && text_[at_] == (object ? '}' : ']')) {
        ++at_;
        nodes_[node].end = node + 1;
      } else {
        open.push_back(node);
        if (object) key();
        continue;
      }
    } else if (c == '"') {
      parse_string();
    } else if (c == '-' || (c >= '0' && c <= '9')) {
      parse_number();
    } else if (c == 't') {
      word("true", Kind::kTrue);
    } else if (c == 'f') {
      word("false", Kind::kFalse);
    } else {
      word("null", Kind::kNull);
    }
    // A value has ended: close what ends with it, or go on to the next element.
    for (;;) {
      if (open.empty()) {
        skip_space();
        if (at_ != text_.size()) fault("text after the document");
        return;
      }
      Node& container = nodes_[open.back()];
      ++container.size;
      skip_space();
      if (at_ >= text_.size()) fault("unexpected end");
      const bool object = container.kind == Kind::kObject;
      const char next = text_[at_];
      if (next == ',') {
        ++at_;
        if (object) key();
        break;
      }
      if (next != (object ? '}' : ']')) fault("expected ',' or the end of the container");
      ++at_;
      container.end = static_cast<uint32_t>(nodes_.size());
      open.pop_back();
    }
  }
}

void Json::parse_string() {
  const size_t start = ++at_;
  const auto plain_end = [&] {
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' && static_cast<uint8_t>(text_[at_]) >= 0x20)
      ++at_;
    if (at_ >= text_.size()) fault("unterminated string");
    if (static_cast<uint8_t>(text_[at_]) < 0x20) fault("control character in a string");
  };
  plain_end();
  if (text_[at_] == '"') {
    nodes_.push_back({Kind::kString, static_cast<uint32_t>(at_ - start), {text_.data() + start}});
    ++at_;
    return;
  }
  std::string& out = unescaped_.emplace_back(text_.substr(start, at_ - start));
  while (text_[at_] != '"') {
    if (at_ + 1 >= text_.size()) fault("unterminated string");
    const char escape = text_[at_ + 1];
    at_ += 2;
    constexpr char kEscapes[] = "\"\\/bfnrt", kMeanings[] = "\"\\/\b\f\n\r\t";
    if (escape == 'u') {
      uint32_t code = parse_hex();
      if (code >= 0xD800 && code < 0xDC00 && text_.substr(at_, 2) == "\\u") {
        const size_t back = at_;
        at_ += 2;
        const uint32_t low = parse_hex();
        if (low >= 0xDC00 && low < 0xE000) {
          code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        } else {
          at_ = back;
        }
      }
      append_utf8(out, code >= 0xD800 && code < 0xE000 ? kReplacement : code);
    } else if (const char* found = escape == 0 ? nullptr : std::strchr(kEscapes, escape)) {
      out += kMeanings[found - kEscapes];
    } else {
      fault("unknown escape");
    }
    const size_t plain = at_;
    plain_end();
    out.append(text_.substr(plain, at_ - plain));
  }
  ++at_;
  nodes_.push_back({Kind::kString, static_cast<uint32_t>(out.size()), {out.data()}});
}

uint32_t Json::parse_hex() {
  uint32_t code = 0;
  const char* first = text_.data() + at_;
  if (text_.size() - at_ < 4 || std::from_chars(first, first + 4, code, 16).ptr != first + 4) fault("bad \\u escape");
  at_ += 4;
  return code;
}

// Rounds as the reference's JSON reader does (serde_json): the digits as a 64-bit integer, to double, times a power of
// ten. That can be off by one unit, and ties between Unigram scores depend on it.
void Json::parse_number() {
  uint64_t significand = 0;
  int64_t exponent = 0;
  bool full = false;  // further digits do not fit
  const auto digits = [&](bool fraction) {
    const size_t start = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      const auto digit = static_cast<uint64_t>(text_[at_] - '0');
      full = full || significand > (UINT64_MAX - digit) / 10;
      if (!full) significand = significand * 10 + digit;
      exponent += full == fraction ? 0 : fraction ? -1 : 1;
    }
    if (at_ == start) fault("expected a digit");
  };
  const bool negative = text_[at_] == '-';
  if (negative) ++at_;
  if (at_ + 1 < text_.size() && text_[at_] == '0' && text_[at_ + 1] >= '0' && text_[at_ + 1] <= '9')
    fault("leading zero");
  digits(false);
  if (at_ < text_.size() && text_[at_] == '.') ++at_, digits(true);
  if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
    ++at_;
    const bool down = at_ < text_.size() && text_[at_] == '-';
    if (down || (at_ < text_.size() && text_[at_] == '+')) ++at_;
    const size_t start = at_;
    int64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
      value = std::min<int64_t>(value * 10 + (text_[at_] - '0'), 100000);
    if (at_ == start) fault("expected a digit");
    exponent += down ? -value : value;
  }
  auto number = static_cast<double>(significand);
  constexpr int64_t kLargest = 308;
  for (; number != 0 && exponent < -kLargest; exponent += kLargest) number /= 1e308;
  if (number != 0 && exponent > kLargest) number = HUGE_VAL;  // refused by whoever wants an integer or a score
  if (number != 0 && exponent != 0 && exponent <= kLargest) {
    const std::string text = "1e" + std::to_string(std::abs(exponent));
    double power = 1;
    std::from_chars(text.data(), text.data() + text.size(), power);
    number = exponent > 0 ? number * power : number / power;
  }
  Node node{Kind::kNumber, 0, {nullptr}};
  node.number = negative ? -number : number;
  nodes_.push_back(node);
}

bool JsonValue::is_null() const { return node_ == kNoNode || document_->nodes_[node_].kind == Json::Kind::kNull; }
bool JsonValue::is_string() const { return node_ != kNoNode && document_->nodes_[node_].kind == Json::Kind::kString; }
bool JsonValue::is_object() const { return node_ != kNoNode && document_->nodes_[node_].kind == Json::Kind::kObject; }
bool JsonValue::is_array() const { return node_ != kNoNode && document_->nodes_[node_].kind == Json::Kind::kArray; }
bool JsonValue::is_number() const { return node_ != kNoNode && document_->nodes_[node_].kind == Json::Kind::kNumber; }

std::string_view JsonValue::string(const char* what) const {
  if (!is_string()) wrong_type(what, "a string");
  return document_->text_of(document_->nodes_[node_]);
}

bool JsonValue::boolean(const char* what) const {
  if (is_null() ||
      (document_->nodes_[node_].kind != Json::Kind::kTrue && document_->nodes_[node_].kind != Json::Kind::kFalse)) {
    wrong_type(what, "true or false");
  }
  return document_->nodes_[node_].kind == Json::Kind::kTrue;
}

double JsonValue::number(const char* what) const {
  if (!is_number()) wrong_type(what, "a number");
  const double value = document_->nodes_[node_].number;
  if (!std::isfinite(value)) wrong_type(what, "a finite number");
  return value;
}

uint32_t JsonValue::integer(const char* what, uint32_t limit) const {
  const double value = number(what);
  if (value < 0 || value >= limit || value != std::floor(value)) {
    fail("IX_TOKENIZER", "%s: expected an integer below %u, found %g", what, limit, value);
  }
  return static_cast<uint32_t>(value);
}

size_t JsonValue::size_of(bool array, const char* what) const {
  if (array ? !is_array() : !is_object()) wrong_type(what, array ? "an array" : "an object");
  return document_->nodes_[node_].size;
}

JsonValue JsonValue::operator[](std::string_view key) const {
  JsonValue found(document_, kNoNode);
  if (is_object()) {
    each_member("object", [&](std::string_view name, JsonValue value) {
      if (name == key) found = value;
    });
  }
  return found;
}

std::string_view JsonValue::string_or(std::string_view key, std::string_view fallback) const {
  const JsonValue value = (*this)[key];
  return value.is_null() ? fallback : value.string(std::string(key).c_str());
}

bool JsonValue::boolean_or(std::string_view key, bool fallback) const {
  const JsonValue value = (*this)[key];
  return value.is_null() ? fallback : value.boolean(std::string(key).c_str());
}

}  // namespace ix
