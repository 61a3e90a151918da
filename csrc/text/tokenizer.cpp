// The encode pipeline: added tokens, normalizer, added tokens of normalized text, pre-tokenizer, model.
#include "text/tokenizer.h"

#include <algorithm>

#include "core/error.h"
#include "text/utf8.h"

namespace ix {
namespace {

constexpr size_t kMaxIdle = 8;

}  // namespace

// A working memory for the time of one call.
struct Tokenizer::Lease {
  explicit Lease(const Tokenizer& owner) : owner(owner) {
    const std::lock_guard lock(owner.mutex_);
    if (!owner.idle_.empty()) {
      scratch = std::move(owner.idle_.back());
      owner.idle_.pop_back();
    }
  }
  ~Lease() {
    const std::lock_guard lock(owner.mutex_);
    if (scratch != nullptr && owner.idle_.size() < kMaxIdle) owner.idle_.push_back(std::move(scratch));
  }
  Scratch& get() {
    if (scratch == nullptr) scratch = std::make_unique<Scratch>();
    return *scratch;
  }
  const Tokenizer& owner;
  std::unique_ptr<Scratch> scratch;
};

void Tokenizer::Texts::add(std::string_view text) {
  if (block.size() + text.size() > UINT32_MAX) fail("IX_TOKENIZER", "the vocabulary's text is too large");
  block += text;
  starts.push_back(static_cast<uint32_t>(block.size()));
}

Tokenizer::Tokenizer(TokenizerParts parts)
    : normalizer_(std::move(parts.normalizer)),
      pretokenizer_(std::move(parts.pretokenizer)),
      model_(std::move(parts.model)),
      added_(std::move(parts.added), normalizer_),
      decoder_(std::move(parts.decoder)),
      prefix_(std::move(parts.prefix)),
      suffix_(std::move(parts.suffix)),
      bos_(parts.bos),
      eos_(parts.eos) {
  uint32_t size = 0;
  for (const auto& [text, id] : parts.tokens) size = std::max(size, id + 1);
  for (const AddedToken& token : added_.list()) size = std::max(size, token.id + 1);
  std::vector<std::string_view> by_id(size);
  for (const auto& [text, id] : parts.tokens) by_id[id] = text;
  special_.resize(size);
  for (const AddedToken& token : added_.list()) {
    by_id[token.id] = token.text;
    special_[token.id] = token.special;
  }
  texts_.starts.reserve(size + 1);
  for (const std::string_view text : by_id) texts_.add(text);
  bytes_.starts.reserve(size + 1);
  for (uint32_t id = 0; id < size; ++id) bytes_.add(decoded(id, false));
}

std::string Tokenizer::decoded(uint32_t id, bool first) const {
  std::string token(texts_[id]);
  if (token.empty()) return token;  // an id that no token has
  if (ends_word(id)) token.erase(token.size() - decoder_.word_end.size());
  for (const auto& step : decoder_.steps) step(token, first);
  return token;
}

bool Tokenizer::ends_word(uint32_t id) const {
  return !decoder_.word_end.empty() && texts_[id].ends_with(decoder_.word_end);
}

uint32_t Tokenizer::find(std::string_view token) const {
  for (const AddedToken& added : added_.list()) {
    if (added.text == token) return added.id;
  }
  for (uint32_t id = 0; id < vocab_size(); ++id) {
    if (texts_[id] == token) return id;
  }
  return kNoToken;
}

void Tokenizer::encode_text(std::string_view text, bool at_start, Pieces& pieces, Scratch& scratch,
                            std::vector<uint32_t>& ids) const {
  pieces.list.assign(1, {text, at_start});
  pieces.owned.clear();
  for (const PretokenizeStep& step : pretokenizer_) step(pieces);
  for (const Piece& piece : pieces.list) model_->encode(piece.text, scratch, ids);
}

std::vector<std::string_view> Tokenizer::control_tokens() const {
  std::vector<std::string_view> out;
  for (size_t i = 0; i < added_.list().size(); ++i) {
    if (added_.is_control(i)) out.push_back(added_.list()[i].text);
  }
  return out;
}

std::vector<int32_t> Tokenizer::encode(const std::vector<TextSegment>& segments, bool add_special) const {
  std::string text;
  std::vector<PlainRange> plain;
  for (const TextSegment& segment : segments) {
    const size_t start = text.size();
    text += is_valid_utf8(segment.text) ? segment.text : replace_invalid_utf8(segment.text);
    if (!segment.parse_special) plain.push_back({start, text.size()});
    if (text.size() >= INT32_MAX)
      fail("IX_INVALID_ARGUMENT", "a text of more than %d bytes is too long to encode", INT32_MAX);
  }
  const auto touches_plain = [&](std::string_view part) {
    const size_t start = static_cast<size_t>(part.data() - text.data());
    return std::any_of(plain.begin(), plain.end(),
                       [&](const PlainRange& r) { return r.start < start + part.size() && start < r.end; });
  };
  Lease lease(*this);
  std::vector<uint32_t> ids;
  ids.reserve(text.size() / 3 + prefix_.size() + suffix_.size());
  if (add_special) ids = prefix_;
  Pieces pieces;
  std::vector<Section> sections, inner;
  added_.cut(text, false, plain, sections);
  for (const Section& section : sections) {
    if (section.id != kNoToken) {
      ids.push_back(section.id);
      continue;
    }
    std::string normalized;
    std::string_view view = section.text;
    if (!normalizer_.empty()) {
      normalized = view;
      for (const NormalizeStep& step : normalizer_) step(normalized);
      view = normalized;
    }
    // Positions are lost by now: one plain byte makes the whole section plain.
    inner.clear();
    added_.cut(view, true,
               touches_plain(section.text) ? std::vector<PlainRange>{{0, view.size()}} : std::vector<PlainRange>{},
               inner);
    for (const Section& part : inner) {
      if (part.id != kNoToken) {
        ids.push_back(part.id);
      } else {
        const bool at_start = section.text.data() == text.data() && part.text.data() == view.data();
        encode_text(part.text, at_start, pieces, lease.get(), ids);
      }
    }
  }
  if (add_special) ids.insert(ids.end(), suffix_.begin(), suffix_.end());
  return {ids.begin(), ids.end()};
}

}  // namespace ix
