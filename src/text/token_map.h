// The compressed vocabulary of the Engram tables (model.md 3.1): tokens whose normalized texts agree share one class,
// so that "Hello", " hello" and "HELLO" address the same rows. Classes are numbered in order of their first token.
// Threading: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace ps::text {

struct TokenMap {
  std::vector<int32_t> class_of;  // [vocab_size] by token id
  int32_t classes = 0;            // 99,092 for the released tokenizer
};

[[nodiscard]] TokenMap engram_token_map(const Tokenizer& tokenizer);

// The normalizer alone: NFKC, NFD, no marks (Mn, Mc, Me), lower case per character, blanks of ASCII runs joined and
// White_Space trimmed, but a text that is one blank stays one blank. REQUIRES: text is valid UTF-8.
[[nodiscard]] std::string engram_normalize(std::string_view text);

}  // namespace ps::text
