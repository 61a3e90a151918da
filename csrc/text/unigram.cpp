// Unigram by Viterbi and WordPiece by longest match, both over a byte trie.
#include "text/unigram.h"

#include <algorithm>
#include <string>

#include "text/bpe.h"
#include "text/utf8.h"

namespace ix {
namespace {

constexpr double kUnknownPenalty = 10.0;
constexpr double kUnreached = -1e300;

}  // namespace

Unigram::Unigram(UnigramOptions options, const std::vector<std::pair<std::string_view, uint32_t>>& tokens,
                 const std::vector<double>& scores, const std::vector<bool>& unreachable)
    : options_(options), scores_(scores) {
  std::fill(std::begin(byte_ids_), std::end(byte_ids_), kNoToken);
  std::vector<std::pair<std::string_view, uint32_t>> reachable;
  double lowest = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto& [text, id] = tokens[i];
    lowest = i == 0 ? scores[i] : std::min(lowest, scores[i]);
    if (const int byte = byte_of_token(text); byte >= 0) byte_ids_[byte] = id;
    if (!unreachable[id]) reachable.emplace_back(text, id);
  }
  unk_score_ = lowest - kUnknownPenalty;
  trie_ = Trie(std::move(reachable));
}

void Unigram::encode(std::string_view piece, Scratch& scratch, std::vector<uint32_t>& ids) const {
  encode_cached(piece, scratch, ids,
                [&](std::string_view text, std::vector<uint32_t>& out) { best_path(text, scratch, out); });
}

void Unigram::best_path(std::string_view piece, Scratch& scratch, std::vector<uint32_t>& ids) const {
  auto& path = scratch.path;  // path[end]: the best way to reach byte `end`
  path.assign(piece.size() + 1, {kUnreached, 0, kNoToken});
  path[0].score = 0;
  for (size_t start = 0; start < piece.size();) {
    const double reached = path[start].score;
    const size_t next = start + decode_utf8(piece, start).length;
    bool whole_character = false;
    const auto offer = [&](size_t end, double score, uint32_t id) {
      if (score > path[end].score) path[end] = {score, static_cast<uint32_t>(start), id};
    };
    trie_.matches(piece, start, [&](size_t end, uint32_t id) {
      offer(end, reached + scores_[id], id);
      whole_character = whole_character || end == next;
    });
    if (!whole_character) offer(next, reached + unk_score_, kNoToken);
    start = next;
  }
  const size_t before = ids.size();
  for (size_t end = piece.size(); end > 0;) {  // backwards
    if (path[end].id != kNoToken) {
      ids.push_back(path[end].id);
      end = path[end].start;
      continue;
    }
    size_t start = end;  // a run of unknown characters is one unknown
    while (start > 0 && path[start].id == kNoToken) start = path[start].start;
    const std::string_view text = piece.substr(start, end - start);
    const bool bytes = options_.byte_fallback && std::all_of(text.begin(), text.end(), [&](char c) {
                         return byte_ids_[static_cast<uint8_t>(c)] != kNoToken;
                       });
    if (bytes) {
      for (size_t i = text.size(); i > 0; --i) ids.push_back(byte_ids_[static_cast<uint8_t>(text[i - 1])]);
    } else if (options_.unk != kNoToken) {
      ids.push_back(options_.unk);
    }
    end = start;
  }
  std::reverse(ids.begin() + before, ids.end());
}

WordPiece::WordPiece(const std::vector<std::pair<std::string_view, uint32_t>>& tokens,
                     const std::vector<bool>& unreachable, uint32_t unk, std::string_view prefix, size_t max_word_codes)
    : unk_(unk), max_word_codes_(max_word_codes) {
  std::vector<std::pair<std::string_view, uint32_t>> starts, continuations;
  for (const auto& [text, id] : tokens) {
    if (unreachable[id]) continue;
    starts.emplace_back(text, id);
    if (text.starts_with(prefix)) continuations.emplace_back(text.substr(prefix.size()), id);
  }
  starts_ = Trie(std::move(starts));
  continuations_ = Trie(std::move(continuations));
}

void WordPiece::encode(std::string_view piece, Scratch& scratch, std::vector<uint32_t>& ids) const {
  encode_cached(piece, scratch, ids, [&](std::string_view word, std::vector<uint32_t>& out) {
    size_t num_codes = 0;
    for_each_code(word, [&](uint32_t, size_t, uint32_t) { ++num_codes; });
    const size_t before = out.size();
    for (size_t at = 0; at < word.size() && num_codes <= max_word_codes_;) {
      size_t end = at;
      uint32_t best = kNoToken;
      (at == 0 ? starts_ : continuations_).matches(word, at, [&](size_t match_end, uint32_t id) {
        end = match_end;
        best = id;
      });
      if (best == kNoToken) {
        num_codes = SIZE_MAX;
        break;
      }
      out.push_back(best);
      at = end;
    }
    if (num_codes > max_word_codes_) {  // a word that cannot be spelled is one unknown
      out.resize(before);
      out.push_back(unk_);
    }
  });
}

}  // namespace ix
