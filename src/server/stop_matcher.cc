#include "server/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace ps::server {

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    if (stop.empty()) continue;
    Pattern pattern{std::move(stop), {}, 0};
    pattern.fallback.assign(pattern.text.size(), 0);
    for (size_t i = 1, border = 0; i < pattern.text.size(); ++i) {
      while (border > 0 && pattern.text[i] != pattern.text[border]) border = pattern.fallback[border - 1];
      if (pattern.text[i] == pattern.text[border]) ++border;
      pattern.fallback[i] = border;
    }
    patterns_.push_back(std::move(pattern));
  }
}

bool StopMatcher::advance(Pattern& pattern, char byte) {
  while (pattern.matched > 0 && pattern.text[pattern.matched] != byte) {
    pattern.matched = pattern.fallback[pattern.matched - 1];
  }
  if (pattern.text[pattern.matched] == byte) ++pattern.matched;
  return pattern.matched == pattern.text.size();
}

void StopMatcher::push(std::string_view text, std::string& out) {
  if (match_ != nullptr) return;
  if (patterns_.empty()) {
    out.append(text);
    return;
  }
  const size_t before = held_.size();
  held_.append(text);
  for (size_t i = 0; i < text.size(); ++i) {
    for (Pattern& pattern : patterns_) {
      if (!advance(pattern, text[i])) continue;
      match_ = &pattern.text;
      out.append(held_, 0, before + i + 1 - pattern.text.size());
      held_.clear();
      return;
    }
  }
  size_t undecided = 0;
  for (const Pattern& pattern : patterns_) undecided = std::max(undecided, pattern.matched);
  out.append(held_, 0, held_.size() - undecided);
  held_.erase(0, held_.size() - undecided);
}

void StopMatcher::finish(std::string& out) {
  if (match_ == nullptr) out.append(held_);
  held_.clear();
}

}  // namespace ps::server
