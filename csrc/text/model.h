// What turns one pre-tokenized piece into token ids; the working memory of an encode call; the cache of short pieces.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/vocab.h"

namespace ix {

// Direct-mapped cache from short pieces to their ids.
class WordCache {
 public:
  static constexpr size_t kMaxBytes = 30, kMaxIds = 6;
  struct Entry {
    uint64_t hash = 0;
    uint8_t num_bytes = 0, num_ids = 0;  // num_ids 0: empty
    char bytes[kMaxBytes];
    uint32_t ids[kMaxIds];
  };
  WordCache() : entries_(kEntries) {}
  Entry& at(uint64_t hash) { return entries_[hash >> 50]; }

 private:
  static constexpr size_t kEntries = size_t{1} << 14;
  std::vector<Entry> entries_;
};

// Used by one encode call at a time; kept between calls for its cache and its capacity.
struct Scratch {
  WordCache cache;
  std::vector<uint32_t> symbols;
  std::vector<uint32_t> ranks;
  struct Link {
    uint32_t id;
    int32_t previous, next;
  };
  std::vector<Link> links;
  struct Candidate {
    uint32_t rank, position, left, right, merged;
  };
  std::vector<Candidate> heap;
  struct Best {
    double score;
    uint32_t start, id;
  };
  std::vector<Best> path;
};

class Model {
 public:
  virtual ~Model() = default;
  // Appends the ids of a piece (valid UTF-8, not empty).
  virtual void encode(std::string_view piece, Scratch& scratch, std::vector<uint32_t>& ids) const = 0;
};

// encode_word(piece, ids) through the cache.
template <class EncodeWord>
void encode_cached(std::string_view piece, Scratch& scratch, std::vector<uint32_t>& ids, EncodeWord&& encode_word) {
  if (piece.size() > WordCache::kMaxBytes) return encode_word(piece, ids);
  const uint64_t hash = hash_bytes(piece, 0x5851F42D4C957F2D);
  WordCache::Entry& entry = scratch.cache.at(hash);
  if (entry.num_ids != 0 && entry.hash == hash && entry.num_bytes == piece.size() &&
      std::memcmp(entry.bytes, piece.data(), piece.size()) == 0) {
    ids.insert(ids.end(), entry.ids, entry.ids + entry.num_ids);
    return;
  }
  const size_t before = ids.size();
  encode_word(piece, ids);
  const size_t count = ids.size() - before;
  if (count == 0 || count > WordCache::kMaxIds) return;
  entry.hash = hash;
  entry.num_bytes = static_cast<uint8_t>(piece.size());
  entry.num_ids = static_cast<uint8_t>(count);
  std::memcpy(entry.bytes, piece.data(), piece.size());
  std::memcpy(entry.ids, ids.data() + before, count * sizeof(uint32_t));
}

}  // namespace ix
