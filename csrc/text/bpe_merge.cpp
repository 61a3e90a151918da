// The merge loops of byte-pair encoding: a scan for short words, a heap over a linked list for long ones.
#include <algorithm>

#include "text/bpe.h"
#include "text/utf8.h"

namespace ix {
namespace {

constexpr size_t kShortWord = 24;  // symbols

// std::*_heap keep the largest on top: the lowest rank, then the leftmost.
bool later(const Scratch::Candidate& a, const Scratch::Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
}

}  // namespace

void Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<uint32_t>& ids) const {
  const auto word = [&](std::string_view text, std::vector<uint32_t>& out) { merge_word(text, scratch, out); };
  if (!cuttable_) return encode_cached(piece, scratch, ids, word);
  if (options_.ignore_merges) {
    if (const uint32_t id = whole_words_.find(piece); id != kNoToken) {
      ids.push_back(id);
      return;
    }
  }
  size_t start = 0;
  uint32_t previous = 0;
  for (size_t at = 0; at < piece.size();) {
    const CodePoint c = decode_utf8(piece, at);
    if (at > start) {
      const size_t bit = border_bit(previous, c.value);
      if ((borders_[bit >> 6] >> (bit & 63) & 1) == 0) {
        encode_cached(piece.substr(start, at - start), scratch, ids, word);
        start = at;
      }
    }
    previous = c.value;
    at += c.length;
  }
  encode_cached(piece.substr(start), scratch, ids, word);
}

void Bpe::symbolize(std::string_view word, std::vector<uint32_t>& symbols) const {
  const auto unknown = [&] {
    if (unk_ != kNoToken && !(options_.fuse_unk && !symbols.empty() && symbols.back() == unk_)) symbols.push_back(unk_);
  };
  if (options_.byte_level) {
    for (const char c : word) {
      const uint32_t id = byte_symbols_[static_cast<uint8_t>(c)];
      if (id != kNoToken) {
        symbols.push_back(id);
      } else {
        unknown();
      }
    }
    return;
  }
  const bool plain = options_.continuing_subword_prefix.empty() && options_.end_of_word_suffix.empty();
  std::string spelled;
  for (size_t at = 0; at < word.size();) {
    const auto byte = static_cast<uint8_t>(word[at]);
    const uint32_t length = byte < 0x80 ? 1 : decode_utf8(word, at).length;
    const std::string_view text = word.substr(at, length);
    uint32_t id;
    if (plain) {
      id = byte < 0x80 ? ascii_symbols_[byte] : table_.find(text);
    } else {
      spelled.clear();
      if (at > 0) spelled += options_.continuing_subword_prefix;
      spelled += text;
      if (at + length == word.size()) spelled += options_.end_of_word_suffix;
      id = table_.find(spelled);
    }
    at += length;
    if (id != kNoToken) {
      symbols.push_back(id);
      continue;
    }
    const bool bytes = options_.byte_fallback && std::all_of(text.begin(), text.end(), [&](char c) {
                         return byte_symbols_[static_cast<uint8_t>(c)] != kNoToken;
                       });
    if (bytes) {
      for (const char c : text) symbols.push_back(byte_symbols_[static_cast<uint8_t>(c)]);
    } else {
      unknown();
    }
  }
}

void Bpe::merge_word(std::string_view word, Scratch& scratch, std::vector<uint32_t>& ids) const {
  if (options_.ignore_merges) {
    if (const uint32_t id = whole_words_.find(word); id != kNoToken && !cuttable_) {
      ids.push_back(id);
      return;
    }
  }
  scratch.symbols.clear();
  symbolize(word, scratch.symbols);
  if (scratch.symbols.size() > kShortWord) {
    merge_long(scratch);
  } else {
    merge_short(scratch);
  }
  ids.insert(ids.end(), scratch.symbols.begin(), scratch.symbols.end());
}

void Bpe::merge_short(Scratch& scratch) const {
  std::vector<uint32_t>& symbols = scratch.symbols;
  std::vector<uint32_t>& ranks = scratch.ranks;  // of the pair that starts at each symbol
  size_t count = symbols.size();
  if (count < 2) return;
  const auto rank_of = [&](size_t i) {
    const PairTable::Value* merge = merges_.find(symbols[i], symbols[i + 1]);
    return merge == nullptr ? UINT32_MAX : merge->rank;
  };
  ranks.resize(count);
  for (size_t i = 0; i + 1 < count; ++i) ranks[i] = rank_of(i);
  while (count > 1) {
    const auto best = static_cast<size_t>(std::min_element(ranks.begin(), ranks.begin() + count - 1) - ranks.begin());
    if (ranks[best] == UINT32_MAX) break;
    symbols[best] = merges_.find(symbols[best], symbols[best + 1])->id;
    std::copy(symbols.begin() + best + 2, symbols.begin() + count, symbols.begin() + best + 1);
    std::copy(ranks.begin() + best + 2, ranks.begin() + count, ranks.begin() + best + 1);
    --count;
    if (best + 1 < count) ranks[best] = rank_of(best);
    if (best > 0) ranks[best - 1] = rank_of(best - 1);
  }
  symbols.resize(count);
}

void Bpe::merge_long(Scratch& scratch) const {
  std::vector<uint32_t>& symbols = scratch.symbols;
  auto& links = scratch.links;
  auto& heap = scratch.heap;
  const auto count = static_cast<int32_t>(symbols.size());
  links.clear();
  heap.clear();
  for (int32_t i = 0; i < count; ++i) links.push_back({symbols[i], i - 1, i + 1 < count ? i + 1 : -1});
  const auto candidate = [&](int32_t at) {  // the pair that starts at `at`, if it merges
    if (at < 0 || links[at].next < 0) return false;
    const uint32_t left = links[at].id, right = links[links[at].next].id;
    const PairTable::Value* merge = merges_.find(left, right);
    if (merge == nullptr) return false;
    heap.push_back({merge->rank, static_cast<uint32_t>(at), left, right, merge->id});
    return true;
  };
  for (int32_t i = 0; i < count; ++i) candidate(i);
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Scratch::Candidate top = heap.back();
    heap.pop_back();
    Scratch::Link& left = links[top.position];
    if (left.id != top.left || left.next < 0 || links[left.next].id != top.right) continue;  // merged meanwhile
    Scratch::Link& right = links[left.next];
    left.id = top.merged;
    right.id = kNoToken;
    left.next = right.next;
    if (left.next >= 0) links[left.next].previous = static_cast<int32_t>(top.position);
    if (candidate(left.previous)) std::push_heap(heap.begin(), heap.end(), later);
    if (candidate(static_cast<int32_t>(top.position))) std::push_heap(heap.begin(), heap.end(), later);
  }
  symbols.clear();
  for (int32_t at = 0; at >= 0; at = links[at].next) symbols.push_back(links[at].id);
}

}  // namespace ix
