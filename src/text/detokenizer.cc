#include "text/detokenizer.h"

#include <utility>

namespace ps::text {

Detokenizer::Emission Detokenizer::push(TokenId id) {
  ++held_tokens_;
  decoder_.append(tokenizer_->token_bytes(id), text_);
  if (text_.empty() || decoder_.has_tail() || text_.ends_with(kReplacement)) return {};
  return {std::exchange(text_, {}), std::exchange(held_tokens_, 0)};
}

void Detokenizer::reset() {
  decoder_ = {};
  text_.clear();
  held_tokens_ = 0;
}

}  // namespace ps::text
