// Text of a token stream as it grows (encoding.md 1.4): text comes out only in whole characters, and each emission says
// how many ids it covers. Emissions of one stream add up to the ids pushed, less those still held at the end, which by
// the publisher's rule give neither text nor usage.
//
// The rule: ids are held until the lossy text of all held ids is non-empty and does not end in U+FFFD. A character that
// the model cut short, or a literal U+FFFD, therefore waits for the text behind it. Each push costs the bytes of its
// own token only, however many ids are held.
// Threading: one thread at a time; the tokenizer must outlive this object.
#pragma once

#include <string>

#include "text/tokenizer.h"
#include "text/utf8.h"

namespace ps::text {

class Detokenizer {
 public:
  struct Emission {
    std::string text;
    int tokens = 0;  // ids that the text covers; 0: nothing comes out yet
  };

  explicit Detokenizer(const Tokenizer& tokenizer) noexcept : tokenizer_(&tokenizer) {}

  // The stop token is not text: do not push it.
  Emission push(TokenId id);
  // Ids pushed since the last emission.
  [[nodiscard]] int held_tokens() const noexcept { return held_tokens_; }
  // Forgets what is held.
  void reset();

 private:
  const Tokenizer* tokenizer_;
  LossyUtf8 decoder_;
  std::string text_;  // of the held ids, whole characters
  int held_tokens_ = 0;
};

}  // namespace ps::text
