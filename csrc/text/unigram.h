// The Unigram model: the segmentation with the best sum of scores (Kudo 2018, arXiv:1804.10959), found by Viterbi.
#pragma once
#include <utility>

#include "text/model.h"
#include "text/trie.h"

namespace ix {

struct UnigramOptions {
  uint32_t unk = kNoToken;
  bool byte_fallback = false;
};

class Unigram : public Model {
 public:
  // tokens[i] has id i and scores[i]; unreachable tokens never come out of text.
  Unigram(UnigramOptions options, const std::vector<std::pair<std::string_view, uint32_t>>& tokens,
          const std::vector<double>& scores, const std::vector<bool>& unreachable);
  void encode(std::string_view piece, Scratch& scratch, std::vector<uint32_t>& ids) const override;

 private:
  void best_path(std::string_view piece, Scratch& scratch, std::vector<uint32_t>& ids) const;

  UnigramOptions options_;
  Trie trie_;
  std::vector<double> scores_;
  double unk_score_;
  uint32_t byte_ids_[256];
};

// Greedy longest match with "##" continuations (BERT).
class WordPiece : public Model {
 public:
  WordPiece(const std::vector<std::pair<std::string_view, uint32_t>>& tokens, const std::vector<bool>& unreachable,
            uint32_t unk, std::string_view prefix, size_t max_word_codes);
  void encode(std::string_view piece, Scratch& scratch, std::vector<uint32_t>& ids) const override;

 private:
  Trie starts_, continuations_;
  uint32_t unk_;
  size_t max_word_codes_;
};

}  // namespace ix
