#include "text/token_trie.h"

namespace ps::text {

TokenTrie::TokenTrie() { roots_.fill(-1); }

int32_t TokenTrie::find_child(int32_t first, char byte) const noexcept {
  while (first >= 0 && nodes_[static_cast<size_t>(first)].byte != byte)
    first = nodes_[static_cast<size_t>(first)].sibling;
  return first;
}

void TokenTrie::add(std::string_view content, TokenId id) {
  const auto append = [this](char byte, int32_t sibling) {
    nodes_.push_back({-1, sibling, -1, byte});
    return static_cast<int32_t>(nodes_.size() - 1);
  };
  int32_t& root = roots_[static_cast<uint8_t>(content[0])];
  if (root < 0) root = append(content[0], -1);
  int32_t at = root;
  for (const char byte : content.substr(1)) {
    const int32_t children = nodes_[static_cast<size_t>(at)].child;
    int32_t child = find_child(children, byte);
    if (child < 0) {
      child = append(byte, children);
      nodes_[static_cast<size_t>(at)].child = child;
    }
    at = child;
  }
  nodes_[static_cast<size_t>(at)].id = id;
}

TokenTrie::Match TokenTrie::find(std::string_view text, size_t from) const noexcept {
  for (size_t begin = from; begin < text.size(); ++begin) {
    int32_t at = roots_[static_cast<uint8_t>(text[begin])];
    Match longest;
    for (size_t end = begin + 1; at >= 0; ++end) {
      const Node& node = nodes_[static_cast<size_t>(at)];
      if (node.id >= 0) longest = {begin, end, node.id};
      if (end == text.size()) break;
      at = find_child(node.child, text[end]);
    }
    if (longest.id >= 0) return longest;
  }
  return {};
}

}  // namespace ps::text
