// Reads tokenizer.json and refuses whatever this runtime does not implement (encoding.md 1.2): a file that loads means
// exactly the byte-level pipeline of DeepSeek V3, V4 and V4.1. Owns no behaviour; tokenizer.h gives the data meaning.
// Threading: pure function.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/bpe.h"

namespace ps::text {

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool is_special = false;
  bool is_normalized = false;
};

struct TokenizerFile {
  // Spelling in the byte-level alphabet by id; empty for an id that is an added token only.
  std::vector<std::string> base;
  std::vector<Merge> merges;
  std::vector<AddedToken> added;  // ascending ids
};

inline constexpr size_t kAddedTokenBytes = 256;  // longest legal content of an added token

// ENSURES: ids are 0..base.size()-1, each in the base vocabulary, an added token, or both with one spelling; all 256
// byte symbols are in the base vocabulary; merges name base tokens, and no pair occurs twice; contents are distinct.
// invalid for malformed text, unsupported for a different tokenizer; the message names the field and what is legal.
[[nodiscard]] Result<TokenizerFile> parse_tokenizer_file(std::string_view json);

}  // namespace ps::text
