// A Tokenizer from a SentencePiece model file (tokenizer.model): a bounded reader of the protobuf messages that matter
// (sentencepiece_model.proto), into a VocabSpec.
#include <cstring>

#include "core/error.h"
#include "text/tokenizer.h"

namespace ix {
namespace {

[[noreturn]] void damaged(const char* why) { fail("IX_TOKENIZER", "the SentencePiece model is damaged: %s", why); }

// The fields of one message. Each kind of value is checked where it is asked for.
class Message {
 public:
  explicit Message(std::string_view bytes) : bytes_(bytes) {}

  bool next() {  // false at the end
    if (at_ == bytes_.size()) return false;
    const uint64_t tag = read_varint();
    field = static_cast<uint32_t>(tag >> 3);
    wire_ = static_cast<uint32_t>(tag & 7);
    switch (wire_) {
      case 0:
        varint_ = read_varint();
        break;
      case 1:
        data_ = read_bytes(8);
        break;
      case 2:
        data_ = read_bytes(read_varint());
        break;
      case 5:
        data_ = read_bytes(4);
        break;
      default:
        damaged("an unknown kind of field");
    }
    return true;
  }
  std::string_view bytes() const { return expect(2), data_; }
  int64_t integer() const { return expect(0), static_cast<int64_t>(varint_); }
  float number() const {
    expect(5);
    float value;
    std::memcpy(&value, data_.data(), 4);
    return value;
  }
  uint32_t field = 0;

 private:
  void expect(uint32_t wire) const {
    if (wire_ != wire) damaged("a field has the wrong type");
  }
  uint64_t read_varint() {
    uint64_t value = 0;
    for (uint32_t shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) damaged("it ends inside a number");
      const auto byte = static_cast<uint8_t>(bytes_[at_++]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    damaged("a number is too long");
  }
  std::string_view read_bytes(uint64_t count) {
    if (count > bytes_.size() - at_) damaged("it ends inside a field");
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }

  std::string_view bytes_, data_;
  size_t at_ = 0;
  uint32_t wire_ = 0;
  uint64_t varint_ = 0;
};

void read_piece(std::string_view bytes, VocabSpec& spec) {
  std::string text;
  float score = 0;
  int32_t type = 1;
  for (Message m(bytes); m.next();) {
    if (m.field == 1) text = m.bytes();
    if (m.field == 2) score = m.number();
    if (m.field == 3) type = static_cast<int32_t>(m.integer());
  }
  if (spec.tokens.size() >= kMaxTokens) damaged("it has too many pieces");
  spec.tokens.push_back(std::move(text));
  spec.scores.push_back(score);
  spec.types.push_back(type);
}

void read_trainer(std::string_view bytes, VocabSpec& spec) {
  spec.unk = 0, spec.bos = 1, spec.eos = 2;  // the message's defaults
  for (Message m(bytes); m.next();) {
    if (m.field == 3) {
      const int64_t kind = m.integer();
      if (kind != 1 && kind != 2)
        fail("IX_TOKENIZER", "SentencePiece models of kind %lld are not supported", static_cast<long long>(kind));
      spec.model = kind == 1 ? "t5" : "llama";
    }
    if (m.field == 24 && m.integer() != 0)
      fail("IX_TOKENIZER", "SentencePiece models with spaces as suffix are not supported");
    if (m.field == 40) spec.unk = m.integer();
    if (m.field == 41) spec.bos = m.integer();
    if (m.field == 42) spec.eos = m.integer();
  }
}

void read_normalizer(std::string_view bytes, VocabSpec& spec) {
  for (Message m(bytes); m.next();) {
    if (m.field == 2) spec.charsmap = m.bytes();
    if (m.field == 3) spec.add_space_prefix = m.integer() != 0;
    if (m.field == 4) spec.remove_extra_whitespaces = m.integer() != 0;
  }
}

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::from_sentencepiece(std::string_view model, const TokenizerConfig& config) {
  VocabSpec spec;
  spec.model = "t5";  // the message's default kind
  spec.remove_extra_whitespaces = true;
  spec.unk = 0, spec.bos = 1, spec.eos = 2;
  for (Message m(model); m.next();) {
    if (m.field == 1) read_piece(m.bytes(), spec);
    if (m.field == 2) read_trainer(m.bytes(), spec);
    if (m.field == 3) read_normalizer(m.bytes(), spec);
  }
  const auto named = [&](const std::optional<std::string>& text, int64_t& id) {
    for (size_t i = 0; text && i < spec.tokens.size(); ++i) {
      if (spec.tokens[i] == *text) id = static_cast<int64_t>(i);
    }
    if (id >= static_cast<int64_t>(spec.tokens.size())) id = -1;  // a default that the model does not have
  };
  named(config.bos_token, spec.bos);
  named(config.eos_token, spec.eos);
  spec.add_bos = config.add_bos;
  spec.add_eos = config.add_eos;
  return from_vocab(spec);
}

}  // namespace ix
