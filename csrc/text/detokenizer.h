// Token ids -> text, token by token: whole characters only, stop strings found across tokens. The pieces joined are
// the one-shot text, whatever the split. One object per sequence.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace ix {

// Finds the first of several strings in a text given bit by bit (Aho and Corasick 1975). Immutable once built.
class StopStrings {
 public:
  explicit StopStrings(const std::vector<std::string>& strings);  // none of them empty

  struct State {
    uint32_t node = 0;
  };
  // Feeds one byte; index of the longest stop string that ends here, or -1.
  int32_t step(State& state, uint8_t byte) const;
  // Length of the longest end of the text so far that begins some stop string.
  size_t partial(State state) const { return nodes_[state.node].depth; }
  bool empty() const { return nodes_.size() == 1; }

 private:
  struct Node {
    std::vector<std::pair<uint8_t, uint32_t>> children;
    uint32_t fallback = 0, depth = 0;
    int32_t found = -1;  // the longest stop string that ends in this node
  };
  uint32_t child(uint32_t node, uint8_t byte) const;
  std::vector<Node> nodes_;
};

struct StreamOptions {
  std::vector<std::string> stop;
  bool include_stop = false;  // the text keeps the stop string
  bool keep_special = false;
  bool continuation = false;  // the ids continue a text: nothing is stripped at the start
};

class Detokenizer {
 public:
  Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, StreamOptions options);
  // Appends the text that is certain by now; ids after a stop string are ignored. Ids beyond the vocabulary have no
  // text (models pad their vocabularies); negative ones throw IX_INVALID_ARGUMENT.
  void push(int32_t id, std::string& out);
  void flush(std::string& out);                       // the held back rest; the sequence is over
  int32_t stop_index() const { return stop_index_; }  // of the stop string that was found, -1: none so far

 private:
  void take_bytes(bool at_end, std::string& out);
  void take_text(std::string_view text, std::string& out);

  std::shared_ptr<const Tokenizer> tokenizer_;
  StreamOptions options_;
  StopStrings stops_;
  StopStrings::State state_;
  std::string bytes_;  // not yet text: an incomplete character, or an incomplete prefix to strip
  std::string held_;   // text that may be the beginning of a stop string
  uint32_t strips_left_;
  bool first_, space_before_ = false;
  int32_t stop_index_ = -1;
};

// The whole text of some ids.
std::string decode(const std::shared_ptr<const Tokenizer>& tokenizer, const int32_t* ids, size_t count,
                   const StreamOptions& options);

}  // namespace ix
