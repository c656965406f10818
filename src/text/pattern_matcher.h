// Finds one fixed string in bytes that arrive one at a time (Knuth-Morris-Pratt): amortized constant time per byte and
// no memory of the text. Threading: one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ps::text {

class PatternMatcher {
 public:
  // With takes_newlines the newlines directly before the pattern belong to a match. REQUIRES: not empty.
  explicit PatternMatcher(std::string_view pattern, bool takes_newlines = false);

  // True when the pattern ends with this byte; held() then is the length of the match. reset() before the next byte.
  bool advance(char byte) noexcept {
    if (byte == pattern_[matched_]) {
      ++matched_;
      return matched_ == pattern_.size();
    }
    return fall_back(byte);
  }
  void reset() noexcept { matched_ = newlines_ = 0; }

  // How many of the last bytes may still become part of a match.
  [[nodiscard]] size_t held() const noexcept { return matched_ + newlines_; }

 private:
  bool fall_back(char byte) noexcept;

  std::string pattern_;
  std::vector<size_t> border_;  // of each prefix: its longest proper prefix that is also its suffix
  size_t matched_ = 0;
  size_t newlines_ = 0;
  bool takes_newlines_ = false;
};

}  // namespace ps::text
