// tokenizer.json from outside: any bytes are either refused or give a tokenizer that encodes and decodes any bytes.
// Input: a tokenizer.json, optionally a zero byte, and then text for it (the whole input where there is none).
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/detokenizer.h"
#include "text/token_map.h"
#include "text/tokenizer.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void exercise(const ps::text::Tokenizer& tokenizer, std::string_view input) {
  using ps::text::AddedTokens;
  for (const AddedTokens mode : {AddedTokens::kParse, AddedTokens::kAsText}) {
    const auto ids = tokenizer.encode(input, mode);
    require(tokenizer.decode_bytes(ids) == input);
    (void)tokenizer.decode(ids, true);
    ps::text::Detokenizer stream(tokenizer);
    size_t covered = 0;
    for (const auto id : ids) {
      require(tokenizer.is_known(id));
      covered += static_cast<size_t>(stream.push(id).tokens);
    }
    require(covered + static_cast<size_t>(stream.held_tokens()) == ids.size());
  }
  require(ps::text::engram_token_map(tokenizer).class_of.size() == static_cast<size_t>(tokenizer.vocab_size()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const auto tokenizer = ps::text::Tokenizer::parse(input.substr(0, zero));
  if (tokenizer.ok()) exercise(*tokenizer.value(), zero == std::string_view::npos ? input : input.substr(zero + 1));
  return 0;
}
