// Finds fixed strings in text, leftmost first and longest among those that start at one place (encoding.md 1.4).
// Time is bounded by text length times the longest string, and close to one look per byte on ordinary text.
// Threading: find() may run on any number of threads once all strings are added.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/bpe.h"

namespace ps::text {

class TokenTrie {
 public:
  struct Match {
    size_t begin = 0;
    size_t end = 0;
    TokenId id = -1;  // -1: nothing found
  };

  TokenTrie();
  // REQUIRES: content is not empty and was not added before.
  void add(std::string_view content, TokenId id);
  [[nodiscard]] Match find(std::string_view text, size_t from) const noexcept;
  [[nodiscard]] bool empty() const noexcept { return nodes_.empty(); }

 private:
  struct Node {
    int32_t child = -1;    // first of the list of children
    int32_t sibling = -1;  // next child of the same parent
    TokenId id = -1;       // of the string that ends here
    char byte = 0;
  };
  [[nodiscard]] int32_t find_child(int32_t first, char byte) const noexcept;

  std::vector<Node> nodes_;
  std::array<int32_t, 256> roots_;  // by first byte; -1: no string starts with it
};

}  // namespace ps::text
