// Building of the tokenizer's hash tables.
#include "text/vocab.h"

#include <bit>
#include <random>

#include "core/error.h"

namespace ix {

uint64_t hash_seed() {
  static const uint64_t seed = [] {
    std::random_device device;
    return static_cast<uint64_t>(device()) << 32 | device();
  }();
  return seed;
}

void TokenTable::reserve(size_t tokens, size_t bytes) {
  if (bytes >= UINT32_MAX) fail("IX_TOKENIZER", "the vocabulary's text has %zu bytes, too many", bytes);
  slots_.assign(std::bit_ceil(tokens * 2 + 1), {0, 0, kNoToken, 0});
  mask_ = slots_.size() - 1;
  arena_.reserve(bytes + 8);
}

void TokenTable::add(std::string_view text, uint32_t id) {
  const uint64_t hash = hash_bytes(text, seed_);
  const auto tag = static_cast<uint32_t>(hash >> 32);
  for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
    Slot& slot = slots_[i];
    if (slot.id == kNoToken) {
      slot = {static_cast<uint32_t>(arena_.size()), static_cast<uint32_t>(text.size()), id, tag};
      arena_ += text;
      return;
    }
    if (slot.tag == tag && slot.length == text.size() &&
        std::memcmp(arena_.data() + slot.offset, text.data(), text.size()) == 0) {
      slot.id = id;
      return;
    }
  }
}

void PairTable::reserve(size_t pairs) {
  slots_.assign(std::bit_ceil(pairs * 2 + 1), {kEmpty, {0, 0}});
  mask_ = slots_.size() - 1;
}

void PairTable::set(uint32_t left, uint32_t right, Value value) {
  const uint64_t key = static_cast<uint64_t>(left) << 32 | right;
  size_t i = slot_of(key);
  while (slots_[i].key != kEmpty && slots_[i].key != key) i = (i + 1) & mask_;
  slots_[i] = {key, value};
}

}  // namespace ix
