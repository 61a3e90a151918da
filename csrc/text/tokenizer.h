// Text -> token ids and the bytes of every token. Immutable after construction and safe to share between threads.
// Not here: token ids -> text (detokenizer.h), chat templates.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/decoder.h"
#include "text/model.h"
#include "text/normalizer.h"
#include "text/pretokenizer.h"

namespace ix {

// What tokenizer_config.json says beside tokenizer.json.
struct TokenizerConfig {
  std::optional<std::string> bos_token, eos_token;
  std::optional<bool> add_bos, add_eos;  // either given: both together replace the post-processor
};

// A vocabulary without a tokenizer.json: GGUF metadata or a SentencePiece model.
struct VocabSpec {
  std::string model;  // "llama" (SentencePiece BPE), "gpt2" (byte-level BPE), "bert" (WordPiece), "t5" (Unigram)
  std::string pre;    // gpt2: name of the split patterns, as in tokenizer.ggml.pre
  std::vector<std::string> tokens;  // by id
  std::vector<float> scores;        // llama, t5: one per token
  std::vector<int32_t> types;  // none, or per token: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
  std::vector<std::string> merges;       // gpt2: "left right"
  int64_t bos = -1, eos = -1, unk = -1;  // -1: none; bert: cls and sep
  std::optional<bool> add_bos, add_eos;
  bool add_space_prefix = true, remove_extra_whitespaces = false;
  std::string charsmap;  // t5: SentencePiece's normalization map
};

// Everything a tokenizer is made of; the product of the three builders.
struct TokenizerParts {
  std::vector<NormalizeStep> normalizer;
  std::vector<PretokenizeStep> pretokenizer;
  std::unique_ptr<Model> model;
  std::vector<AddedToken> added;
  Decoder decoder;
  std::vector<uint32_t> prefix, suffix;  // ids around a text with add_special
  std::vector<std::pair<std::string_view, uint32_t>>
      tokens;  // model vocabulary; texts must live until the tokenizer is built
  uint32_t bos = kNoToken, eos = kNoToken;
};

// A part of a text; without parse_special, texts of control tokens in it stay text.
struct TextSegment {
  std::string text;
  bool parse_special;
};

class Tokenizer {
 public:
  // All three throw IX_TOKENIZER for damaged, contradictory or unsupported input.
  static std::shared_ptr<const Tokenizer> from_json(std::string_view json, const TokenizerConfig& config);
  static std::shared_ptr<const Tokenizer> from_vocab(const VocabSpec& spec);
  static std::shared_ptr<const Tokenizer> from_sentencepiece(std::string_view model, const TokenizerConfig& config);

  explicit Tokenizer(TokenizerParts parts);

  // The ids of the joined text; add_special: with the ids that the model expects around a text.
  // Invalid UTF-8 is read as TextDecoder reads it.
  std::vector<int32_t> encode(const std::vector<TextSegment>& segments, bool add_special) const;

  uint32_t vocab_size() const { return static_cast<uint32_t>(special_.size()); }  // largest id + 1
  bool is_special(uint32_t id) const { return id < vocab_size() && special_[id]; }
  std::string_view token_text(uint32_t id) const {
    return texts_[id];
  }  // as spelled in the vocabulary; id < vocab_size()
  std::string_view token_bytes(uint32_t id) const { return bytes_[id]; }    // what it stands for inside a text
  std::string first_bytes(uint32_t id) const { return decoded(id, true); }  // what it stands for at the start
  bool ends_word(uint32_t id) const;                                        // a space follows before the next token
  uint32_t find(std::string_view token) const;                              // kNoToken: no such token
  std::vector<std::string_view> control_tokens() const;                     // texts that parse_special is about
  uint32_t bos() const { return bos_; }
  uint32_t eos() const { return eos_; }
  const Decoder& decoder() const { return decoder_; }

 private:
  // Strings by id in one block.
  struct Texts {
    std::string block;
    std::vector<uint32_t> starts{0};
    std::string_view operator[](uint32_t id) const {
      return std::string_view(block).substr(starts[id], starts[id + 1] - starts[id]);
    }
    void add(std::string_view text);
  };
  struct Lease;
  std::string decoded(uint32_t id, bool first) const;
  void encode_text(std::string_view text, bool at_start, Pieces& pieces, Scratch& scratch,
                   std::vector<uint32_t>& ids) const;

  std::vector<NormalizeStep> normalizer_;
  std::vector<PretokenizeStep> pretokenizer_;
  std::unique_ptr<Model> model_;
  AddedTokens added_;
  Decoder decoder_;
  std::vector<uint32_t> prefix_, suffix_;
  Texts texts_, bytes_;
  std::vector<bool> special_;
  uint32_t bos_, eos_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_;  // working memories between calls
};

}  // namespace ix
