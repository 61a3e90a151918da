// Incremental detokenization and stop strings.
#include "text/detokenizer.h"

#include "core/error.h"
#include "text/utf8.h"

namespace ix {
namespace {

constexpr size_t kMaxStopBytes = 1 << 16;

}  // namespace

StopStrings::StopStrings(const std::vector<std::string>& strings) : nodes_(1) {
  size_t num_bytes = 0;
  for (size_t index = 0; index < strings.size(); ++index) {
    const std::string& text = strings[index];
    if (text.empty()) fail("IX_INVALID_ARGUMENT", "a stop string is empty");
    num_bytes += text.size();
    if (num_bytes > kMaxStopBytes)
      fail("IX_INVALID_ARGUMENT", "the stop strings have more than %zu bytes", kMaxStopBytes);
    uint32_t node = 0;
    for (const char c : text) {
      const auto byte = static_cast<uint8_t>(c);
      uint32_t next = child(node, byte);
      if (next == 0) {
        next = static_cast<uint32_t>(nodes_.size());
        nodes_.emplace_back().depth = nodes_[node].depth + 1;
        nodes_[node].children.emplace_back(byte, next);
      }
      node = next;
    }
    if (nodes_[node].found < 0) nodes_[node].found = static_cast<int32_t>(index);
  }
  std::vector<uint32_t> queue{0};  // breadth first: fallbacks are shallower, so they are ready
  for (size_t i = 0; i < queue.size(); ++i) {
    const uint32_t node = queue[i];
    for (const auto& [byte, next] : nodes_[node].children) {
      queue.push_back(next);
      if (node == 0) continue;
      State state{nodes_[node].fallback};
      step(state, byte);
      nodes_[next].fallback = state.node;
      if (nodes_[next].found < 0) nodes_[next].found = nodes_[state.node].found;
    }
  }
}

uint32_t StopStrings::child(uint32_t node, uint8_t byte) const {
  for (const auto& [label, next] : nodes_[node].children) {
    if (label == byte) return next;
  }
  return 0;
}

int32_t StopStrings::step(State& state, uint8_t byte) const {
  uint32_t next;
  while ((next = child(state.node, byte)) == 0 && state.node != 0) state.node = nodes_[state.node].fallback;
  state.node = next;
  return nodes_[next].found;
}

Detokenizer::Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, StreamOptions options)
    : tokenizer_(std::move(tokenizer)),
      options_(std::move(options)),
      stops_(options_.stop),
      strips_left_(options_.continuation ? 0 : tokenizer_->decoder().strip_count),
      first_(!options_.continuation) {}

void Detokenizer::push(int32_t id, std::string& out) {
  if (id < 0) fail("IX_INVALID_ARGUMENT", "token id %d is negative", id);
  const auto token = static_cast<uint32_t>(id);
  if (stop_index_ >= 0 || token >= tokenizer_->vocab_size()) return;
  if (!options_.keep_special && tokenizer_->is_special(token)) return;
  if (space_before_) bytes_ += ' ';
  space_before_ = tokenizer_->ends_word(token);
  if (first_) {
    bytes_ += tokenizer_->first_bytes(token);
    first_ = false;
  } else {
    bytes_ += tokenizer_->token_bytes(token);
  }
  take_bytes(false, out);
}

void Detokenizer::flush(std::string& out) {
  if (stop_index_ >= 0) return;
  take_bytes(true, out);
  out += held_;  // empty if a stop string was found just now
  held_.clear();
}

void Detokenizer::take_bytes(bool at_end, std::string& out) {
  const std::string& strip = tokenizer_->decoder().strip;
  while (strips_left_ > 0 && !bytes_.empty()) {
    if (bytes_.starts_with(strip)) {
      bytes_.erase(0, strip.size());
      --strips_left_;
    } else if (!at_end && strip.starts_with(bytes_)) {
      return;  // too short to tell
    } else {
      strips_left_ = 0;
    }
  }
  size_t at = 0;
  bool valid = true;
  while (at < bytes_.size()) {
    const CodePoint c = decode_utf8(bytes_, at);
    if (c.truncated && !at_end) break;
    valid = valid && c.valid;
    at += c.length;
  }
  const std::string_view whole = std::string_view(bytes_).substr(0, at);
  if (valid) {
    take_text(whole, out);
  } else {
    take_text(replace_invalid_utf8(whole), out);
  }
  bytes_.erase(0, at);
}

void Detokenizer::take_text(std::string_view text, std::string& out) {
  if (stops_.empty()) {
    out += text;
    return;
  }
  for (const char c : text) {
    held_ += c;
    stop_index_ = stops_.step(state_, static_cast<uint8_t>(c));
    if (stop_index_ >= 0) {
      out.append(held_, 0, held_.size() - (options_.include_stop ? 0 : options_.stop[stop_index_].size()));
      held_.clear();
      return;
    }
  }
  const size_t certain = held_.size() - stops_.partial(state_);
  out.append(held_, 0, certain);
  held_.erase(0, certain);
}

std::string decode(const std::shared_ptr<const Tokenizer>& tokenizer, const int32_t* ids, size_t count,
                   const StreamOptions& options) {
  Detokenizer stream(tokenizer, options);
  std::string out;
  for (size_t i = 0; i < count; ++i) stream.push(ids[i], out);
  stream.flush(out);
  return out;
}

}  // namespace ix
