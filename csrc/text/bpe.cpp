// Byte-pair encoding: vocabulary and merges (bpe_merge.cpp has the merge loops).
#include "text/bpe.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "core/error.h"
#include "text/utf8.h"

namespace ix {
namespace {

// GPT-2's alphabet: printable Latin-1 stands for itself, the other 68 bytes follow from U+0100 on.
constexpr bool stands_for_itself(uint32_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct ByteAlphabet {
  uint16_t code_of[256];
  int16_t byte_of[0x144];
};

constexpr ByteAlphabet make_alphabet() {
  ByteAlphabet out{};
  for (auto& b : out.byte_of) b = -1;
  uint16_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    out.code_of[byte] = stands_for_itself(byte) ? static_cast<uint16_t>(byte) : next++;
    out.byte_of[out.code_of[byte]] = static_cast<int16_t>(byte);
  }
  return out;
}

constexpr ByteAlphabet kAlphabet = make_alphabet();

}  // namespace

bool byte_level_bytes(std::string_view text, std::string& bytes) {
  bytes.clear();
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_utf8(text, at);
    if (c.value >= std::size(kAlphabet.byte_of) || kAlphabet.byte_of[c.value] < 0) return false;
    bytes += static_cast<char>(kAlphabet.byte_of[c.value]);
    at += c.length;
  }
  return true;
}

void append_byte_level(std::string& out, uint8_t byte) { append_utf8(out, kAlphabet.code_of[byte]); }

int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

Bpe::Bpe(BpeOptions options, const std::vector<std::pair<std::string_view, uint32_t>>& tokens,
         const std::vector<bool>& unreachable)
    : options_(std::move(options)) {
  size_t num_bytes = 0;
  for (const auto& [text, id] : tokens) num_bytes += text.size();
  table_.reserve(tokens.size(), num_bytes);
  for (const auto& [text, id] : tokens) table_.add(text, id);

  if (options_.ignore_merges) {
    whole_words_.reserve(tokens.size(), num_bytes);
    std::string bytes;
    for (const auto& [text, id] : tokens) {
      if (unreachable[id]) continue;
      if (!options_.byte_level) {
        whole_words_.add(text, id);
      } else if (byte_level_bytes(text, bytes)) {
        whole_words_.add(bytes, id);
      }
    }
  }
  std::string text;
  all_bytes_ = true;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    text.clear();
    if (options_.byte_level) {
      append_byte_level(text, static_cast<uint8_t>(byte));
    } else {
      constexpr char kHex[] = "0123456789ABCDEF";
      text = {'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'};
    }
    byte_symbols_[byte] = table_.find(text);
    all_bytes_ = all_bytes_ && byte_symbols_[byte] != kNoToken;
  }
  for (int c = 0; c < 128; ++c) {
    const char character = static_cast<char>(c);
    ascii_symbols_[c] = table_.find({&character, 1});
  }
  if (!options_.unk_token.empty()) {
    unk_ = table_.find(options_.unk_token);
    if (unk_ == kNoToken)
      fail("IX_TOKENIZER", "the unknown token \"%.100s\" is not in the vocabulary", options_.unk_token.c_str());
  }
  const bool may_fuse = unk_ != kNoToken && options_.fuse_unk && !(options_.byte_fallback && all_bytes_);
  cuttable_ = !options_.byte_level && !may_fuse && options_.continuing_subword_prefix.empty() &&
              options_.end_of_word_suffix.empty();
  if (cuttable_) borders_.resize((size_t{1} << 22) / 64);
}

void Bpe::add_merge(const Merge& merge, std::string_view left, std::string_view right) {
  merges_.set(merge.left, merge.right, {merge.rank, merge.merged});
  if (!cuttable_ || left.empty() || right.empty()) return;
  if (options_.byte_fallback && (byte_of_token(left) >= 0 || byte_of_token(right) >= 0)) {
    cuttable_ = false;  // bytes of different characters could merge
    return;
  }
  const size_t bit = border_bit(decode_utf8(left, previous_code(left, left.size())).value, first_code(right));
  borders_[bit >> 6] |= uint64_t{1} << (bit & 63);
}

void Bpe::set_merges(const std::vector<std::pair<std::string_view, std::string_view>>& merges) {
  merges_.reserve(merges.size());
  const size_t prefix = options_.continuing_subword_prefix.size();
  std::string joint;
  for (uint32_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    joint.assign(left);
    joint += right.size() >= prefix ? right.substr(prefix) : right;
    const Merge merge{table_.find(left), table_.find(right), table_.find(joint), rank};
    if (merge.left == kNoToken || merge.right == kNoToken || merge.merged == kNoToken) {
      fail("IX_TOKENIZER", "merge %u (\"%.60s\" + \"%.60s\") is not in the vocabulary", rank, std::string(left).c_str(),
           std::string(right).c_str());
    }
    add_merge(merge, left, right);
  }
}

void Bpe::set_merges_by_score(const std::vector<std::pair<std::string_view, uint32_t>>& tokens,
                              const std::vector<float>& scores) {
  std::vector<uint32_t> order(tokens.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return scores[a] > scores[b]; });
  struct Part {
    Merge merge;
    std::string_view left, right;
  };
  std::vector<Part> found;
  uint32_t rank = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const auto& [text, id] = tokens[order[i]];
    if (i > 0 && scores[order[i]] != scores[order[i - 1]]) ++rank;
    for (size_t cut = 1; cut < text.size(); ++cut) {
      if ((static_cast<uint8_t>(text[cut]) & 0xC0) == 0x80) continue;
      const uint32_t left = table_.find(text.substr(0, cut)), right = table_.find(text.substr(cut));
      if (left == kNoToken || right == kNoToken) continue;
      found.push_back({{left, right, id, rank}, text.substr(0, cut), text.substr(cut)});
    }
  }
  merges_.reserve(found.size());
  for (const Part& part : found) add_merge(part.merge, part.left, part.right);
}

}  // namespace ix
