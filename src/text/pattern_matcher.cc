#include "text/pattern_matcher.h"

namespace ps::text {

PatternMatcher::PatternMatcher(std::string_view pattern, bool takes_newlines)
    : pattern_(pattern), border_(pattern.size() + 1), takes_newlines_(takes_newlines) {
  size_t border = 0;
  for (size_t length = 2; length <= pattern.size(); ++length) {
    while (border > 0 && pattern[length - 1] != pattern[border]) border = border_[border];
    if (pattern[length - 1] == pattern[border]) ++border;
    border_[length] = border;
  }
}

bool PatternMatcher::fall_back(char byte) noexcept {
  const bool was_idle = matched_ == 0;
  while (matched_ > 0 && byte != pattern_[matched_]) matched_ = border_[matched_];
  if (byte == pattern_[matched_]) ++matched_;
  // Newlines count only directly before the first byte: a false start separates them from what follows.
  newlines_ = takes_newlines_ && was_idle && byte == '\n' ? newlines_ + 1 : 0;
  return false;
}

}  // namespace ps::text
