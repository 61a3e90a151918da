// A strict, bounded JSON reader for large tokenizer files: one flat array of nodes in document order, no recursion,
// strings without escapes are views into the text. Not here: writing, numbers beyond double.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace ix {

class Json;

// A value inside a Json document; valid as long as the document and its text are. Wrong types throw IX_TOKENIZER.
class JsonValue {
 public:
  bool is_null() const;  // also true for an absent member
  bool is_string() const;
  bool is_object() const;
  bool is_array() const;
  bool is_number() const;
  std::string_view string(const char* what) const;
  bool boolean(const char* what) const;
  double number(const char* what) const;
  uint32_t integer(const char* what, uint32_t limit) const;                  // 0 <= value < limit
  size_t size(const char* what) const { return size_of(is_array(), what); }  // elements or members

  JsonValue operator[](
      std::string_view key) const;  // last member of that name, null value when absent or not an object
  std::string_view string_or(std::string_view key, std::string_view fallback) const;
  bool boolean_or(std::string_view key, bool fallback) const;

  template <class Visit>  // visit(JsonValue)
  void each(const char* what, Visit&& visit) const;
  template <class Visit>  // visit(std::string_view key, JsonValue)
  void each_member(const char* what, Visit&& visit) const;

 private:
  friend class Json;
  size_t size_of(bool array, const char* what) const;
  JsonValue(const Json* document, uint32_t node) : document_(document), node_(node) {}
  const Json* document_;
  uint32_t node_;
};

class Json {
 public:
  explicit Json(std::string_view text);  // throws IX_TOKENIZER with the offset of the fault
  JsonValue root() const { return {this, 0}; }

 private:
  friend class JsonValue;
  enum class Kind : uint8_t { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };
  struct Node {
    Kind kind;
    uint32_t size;  // bytes of a string, elements of an array, members of an object (each a key node and a value)
    union {
      const char* text;
      double number;
      uint32_t end;  // node after the container's last one
    };
  };

  uint32_t after(uint32_t node) const { return nodes_[node].kind >= Kind::kArray ? nodes_[node].end : node + 1; }
  std::string_view text_of(const Node& node) const { return {node.text, node.size}; }
  void parse();
  void parse_string();
  void parse_number();
  uint32_t parse_hex();
  void skip_space();
  [[noreturn]] void fault(const char* why) const;

  std::string_view text_;
  size_t at_ = 0;
  std::vector<Node> nodes_;
  std::deque<std::string> unescaped_;
};

template <class Visit>
void JsonValue::each(const char* what, Visit&& visit) const {
  size_t left = size_of(true, what);
  for (uint32_t node = node_ + 1; left > 0; --left, node = document_->after(node)) visit(JsonValue(document_, node));
}

template <class Visit>
void JsonValue::each_member(const char* what, Visit&& visit) const {
  size_t left = size_of(false, what);
  for (uint32_t node = node_ + 1; left > 0; --left, node = document_->after(node + 1)) {
    visit(document_->text_of(document_->nodes_[node]), JsonValue(document_, node + 1));
  }
}

}  // namespace ix
