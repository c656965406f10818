// A small tokenizer.json with the official structure, for synthetic checkpoints and tests: the same pipeline, the same
// control tokens with the same flags, and a few hundred merges learned from an English sample.
//
// Ids: 0,1,2 the sentence and pad tokens; 3..258 the byte symbols; then the merges; then the named added tokens of the
// chat format, image placeholder and tasks; then <｜place▁holder▁no▁N｜> up to vocab_size. Callers find ids by content.
// Threading: pure function. Deterministic: equal sizes give equal text.
#pragma once

#include <string>

#include "base/status.h"

namespace ps::text {

inline constexpr int kSmallestSyntheticVocab = 288;
inline constexpr int kLargestSyntheticVocab = 262144;

// invalid for a size outside the two limits. Checkpoints want a multiple of 32.
[[nodiscard]] Result<std::string> make_synthetic_tokenizer(int vocab_size);

}  // namespace ps::text
