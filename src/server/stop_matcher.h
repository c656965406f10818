// Finds stop strings in text that arrives in any pieces. Text that may still become a stop string is held back, so
// that no part of one is ever shown; everything else flows on at once. The match that ends first counts; among those
// that end together, the first in the list. The result does not depend on the pieces.
// Threading: one thread at a time.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ps::server {

class StopMatcher {
 public:
  // Empty strings are ignored.
  explicit StopMatcher(std::vector<std::string> stops);

  // Appends to `out` what of the text is certainly before any stop string. After a match nothing more comes out.
  void push(std::string_view text, std::string& out);
  // The text has ended: what was held back comes out.
  void finish(std::string& out);
  // The stop string that was found. Valid while the matcher lives.
  [[nodiscard]] const std::string* match() const noexcept { return match_; }

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> fallback;  // [i]: the longest proper border of the first i + 1 bytes
    size_t matched = 0;            // bytes of `text` that the input ends with
  };
  // Whether the byte completes the pattern.
  static bool advance(Pattern& pattern, char byte);

  std::vector<Pattern> patterns_;
  std::string held_;
  const std::string* match_ = nullptr;
};

}  // namespace ps::server
