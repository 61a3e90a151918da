// Byte-pair encoding, on bytes (byte-level) or on characters with byte fallback (SentencePiece, classic BPE).
#pragma once
#include <memory>
#include <string>
#include <utility>

#include "text/model.h"

namespace ix {

struct BpeOptions {
  bool byte_level = false;     // symbols are bytes; token texts are spelled in the GPT-2 byte alphabet
  bool byte_fallback = false;  // unknown characters become <0xNN> tokens
  bool fuse_unk = false;
  bool ignore_merges = false;  // a piece that is a token is that token
  std::string unk_token, continuing_subword_prefix, end_of_word_suffix;
};

// One merge by ids; merges come in order of rank, equal ranks allowed.
struct Merge {
  uint32_t left, right, merged, rank;
};

class Bpe : public Model {
 public:
  // `tokens`: model vocabulary (text, id). `unreachable(id)`: tokens that ordinary text must not become.
  Bpe(BpeOptions options, const std::vector<std::pair<std::string_view, uint32_t>>& tokens,
      const std::vector<bool>& unreachable);
  uint32_t find(std::string_view token) const { return table_.find(token); }
  // Ranks by order; throws IX_TOKENIZER when a part or the result is not in the vocabulary.
  void set_merges(const std::vector<std::pair<std::string_view, std::string_view>>& merges);
  // SentencePiece: any two neighbours whose joint text is a token merge, best score first.
  void set_merges_by_score(const std::vector<std::pair<std::string_view, uint32_t>>& tokens,
                           const std::vector<float>& scores);
  void encode(std::string_view piece, Scratch& scratch, std::vector<uint32_t>& ids) const override;

 private:
  void add_merge(const Merge& merge, std::string_view left, std::string_view right);
  void symbolize(std::string_view word, std::vector<uint32_t>& symbols) const;
  void merge_word(std::string_view word, Scratch& scratch, std::vector<uint32_t>& ids) const;
  void merge_short(Scratch& scratch) const;
  void merge_long(Scratch& scratch) const;
  size_t border_bit(uint32_t left, uint32_t right) const {
    return mix((uint64_t{left} << 32 | right) ^ 0xA5, 0x9E3779B97F4A7C15) >> 42;
  }

  BpeOptions options_;
  TokenTable table_;        // token text -> id, as spelled in the file
  TokenTable whole_words_;  // text -> id for ignore_merges
  PairTable merges_;
  uint32_t byte_symbols_[256];  // byte-level: the byte's token; else the <0xNN> token
  uint32_t ascii_symbols_[128];
  uint32_t unk_ = kNoToken;
  bool all_bytes_ = false;
  // Characters between which no merge ever happens are safe places to cut: words become short and cacheable.
  bool cuttable_ = false;
  std::vector<uint64_t> borders_;  // filter of (last character, first character) pairs of all merges
};

// The GPT-2 spelling of bytes as characters: bytes of a token text, or nothing if it is not in that alphabet.
bool byte_level_bytes(std::string_view text, std::string& bytes);
void append_byte_level(std::string& out, uint8_t byte);
// NN of "<0xNN>", or -1.
int byte_of_token(std::string_view token);

}  // namespace ix
