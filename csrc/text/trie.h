// A read-only byte trie over a set of texts with ids: all texts that begin at a place, shortest first.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "text/vocab.h"

namespace ix {

class Trie {
 public:
  Trie() = default;
  // Empty texts are ignored; of equal texts the last one counts.
  explicit Trie(std::vector<std::pair<std::string_view, uint32_t>> texts) {
    std::stable_sort(texts.begin(), texts.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    struct Range {
      size_t first, last, depth;  // texts [first, last) share `depth` bytes
    };
    std::vector<Range> ranges{{0, texts.size(), 0}};
    nodes_.push_back({0, 0, kNoToken});
    for (size_t node = 0; node < ranges.size(); ++node) {  // breadth first: the children of a node lie together
      const Range range = ranges[node];
      size_t i = range.first;
      for (; i < range.last && texts[i].first.size() == range.depth; ++i) {
        if (range.depth > 0) nodes_[node].id = texts[i].second;
      }
      nodes_[node].first_child = static_cast<uint32_t>(ranges.size());
      while (i < range.last) {
        const char byte = texts[i].first[range.depth];
        size_t end = i + 1;
        while (end < range.last && texts[end].first[range.depth] == byte) ++end;
        ranges.push_back({i, end, range.depth + 1});
        nodes_.push_back({0, 0, kNoToken});
        labels_.resize(nodes_.size());
        labels_.back() = static_cast<uint8_t>(byte);
        if (node == 0) starts_[static_cast<uint8_t>(byte)] = static_cast<uint32_t>(nodes_.size() - 1);
        ++nodes_[node].num_children;
        i = end;
      }
    }
  }

  bool can_start(uint8_t byte) const { return starts_[byte] != 0; }

  template <class Visit>  // visit(end, id) for each text that begins at text[at]
  void matches(std::string_view text, size_t at, Visit&& visit) const {
    if (at >= text.size()) return;
    uint32_t node = starts_[static_cast<uint8_t>(text[at++])];
    while (node != 0) {
      if (nodes_[node].id != kNoToken) visit(at, nodes_[node].id);
      if (at >= text.size()) return;
      node = child(node, static_cast<uint8_t>(text[at++]));
    }
  }

 private:
  struct Node {
    uint32_t first_child, num_children, id;
  };
  uint32_t child(uint32_t node, uint8_t byte) const {  // 0: none
    const auto first = labels_.begin() + nodes_[node].first_child, last = first + nodes_[node].num_children;
    const auto found = std::lower_bound(first, last, byte);
    return found != last && *found == byte ? static_cast<uint32_t>(found - labels_.begin()) : 0;
  }

  std::vector<Node> nodes_;
  std::vector<uint8_t> labels_;  // of the edge into each node
  uint32_t starts_[256] = {};
};

}  // namespace ix
