// Hash tables of the tokenizer: token text -> id (TokenTable) and pairs of ids -> value (PairTable).
// Built once, then only read; keys are hashed with a per-process seed, since vocabularies are not trusted.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace ix {

constexpr uint32_t kNoToken = UINT32_MAX;
constexpr uint32_t kMaxTokens = 1u << 22;  // ids are below this

uint64_t hash_seed();

inline uint64_t mix(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t hash_bytes(std::string_view text, uint64_t seed) {
  constexpr uint64_t kA = 0x9E3779B97F4A7C15, kB = 0xD6E8FEB86659FD93;
  uint64_t hash = seed ^ (text.size() * kA), word;
  const char* data = text.data();
  size_t left = text.size();
  for (; left > 8; left -= 8, data += 8) {
    std::memcpy(&word, data, 8);
    hash = mix(hash ^ word, kB);
  }
  word = 0;
  std::memcpy(&word, data, left);
  return mix(hash ^ word, kA | 1);
}

class TokenTable {
 public:
  void reserve(size_t tokens, size_t bytes);     // before the first add(); no more than that may be added
  void add(std::string_view text, uint32_t id);  // a later id for the same text replaces the earlier one
  uint32_t find(std::string_view text) const {
    if (slots_.empty()) return kNoToken;
    const uint64_t hash = hash_bytes(text, seed_);
    const auto tag = static_cast<uint32_t>(hash >> 32);
    for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.id == kNoToken) return kNoToken;
      if (slot.tag == tag && slot.length == text.size() &&
          std::memcmp(arena_.data() + slot.offset, text.data(), text.size()) == 0)
        return slot.id;
    }
  }

 private:
  struct Slot {
    uint32_t offset, length, id, tag;  // tag: high half of the hash
  };
  std::vector<Slot> slots_;
  std::string arena_;
  size_t mask_ = 0;
  uint64_t seed_ = hash_seed();
};

class PairTable {
 public:
  struct Value {
    uint32_t rank, id;
  };
  void reserve(size_t pairs);
  void set(uint32_t left, uint32_t right, Value value);  // a later value replaces the earlier one
  const Value* find(uint32_t left, uint32_t right) const {
    if (slots_.empty()) return nullptr;
    const uint64_t key = static_cast<uint64_t>(left) << 32 | right;
    for (size_t i = slot_of(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return &slots_[i].value;
      if (slots_[i].key == kEmpty) return nullptr;
    }
  }

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;
  struct Slot {
    uint64_t key;
    Value value;
  };
  size_t slot_of(uint64_t key) const { return mix(key ^ seed_, 0x9E3779B97F4A7C15) & mask_; }
  std::vector<Slot> slots_;
  size_t mask_ = 0;
  uint64_t seed_ = hash_seed();
};

}  // namespace ix
