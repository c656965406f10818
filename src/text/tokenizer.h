// The tokenizer of the model: text to ids and back (encoding.md section 1), from an official tokenizer.json.
//
// Nothing is added to a text: the prompt encoder writes <｜begin▁of▁sentence｜> itself. Text that a user wrote is
// encoded with AddedTokens::kAsText, so that a typed "<｜User｜>" or "</think>" stays plain characters. Bytes that are
// not valid UTF-8 are legal in encode(): each becomes the token of that byte, so decode_bytes() gives the input back
// for every input. Threading: immutable after loading; every method may run on any number of threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "text/bpe.h"
#include "text/token_trie.h"
#include "text/tokenizer_file.h"

namespace ps::text {

// A stretch of a text, in bytes.
struct TextRange {
  size_t begin = 0;
  size_t end = 0;
};

enum class AddedTokens {
  kParse,   // control tokens in the text become their ids
  kAsText,  // they are ordinary characters
};

class Tokenizer {
 public:
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Reads tokenizer.json. invalid, not_found or unsupported; the message names the field and what is legal there.
  static Result<std::shared_ptr<const Tokenizer>> load(const std::filesystem::path& path);
  static Result<std::shared_ptr<const Tokenizer>> parse(std::string_view json);

  // REQUIRES: text.size() < 2^31.
  [[nodiscard]] std::vector<TokenId> encode(std::string_view text, AddedTokens mode = AddedTokens::kParse) const;
  // The same, appended to `out`.
  void encode(std::string_view text, AddedTokens mode, std::vector<TokenId>& out) const;

  // Of text[from..]: control tokens are found only where they touch no range of `literal`, the text that users wrote.
  // The cuts into words do not see those ranges, so text without control tokens has the same ids as in kParse.
  // REQUIRES: text.size() < 2^31; the ranges are offsets in `text`, ascending and disjoint; some may lie past its end.
  void encode(std::string_view text, size_t from, std::span<const TextRange> literal, std::vector<TokenId>& out) const;

  // Text of the ids; bad UTF-8 becomes U+FFFD, one per maximal broken prefix. Unknown ids give nothing.
  [[nodiscard]] std::string decode(std::span<const TokenId> ids, bool skip_special = false) const;
  // The bytes themselves.
  [[nodiscard]] std::string decode_bytes(std::span<const TokenId> ids, bool skip_special = false) const;

  // Ids are 0..vocab_size()-1. The embedding may have more rows than that.
  [[nodiscard]] int32_t vocab_size() const noexcept { return static_cast<int32_t>(tokens_.entries.size()); }
  [[nodiscard]] bool is_known(TokenId id) const noexcept { return id >= 0 && id < vocab_size(); }
  // Bytes that a token stands for; empty for an unknown id. Valid while the tokenizer lives.
  [[nodiscard]] std::string_view token_bytes(TokenId id) const noexcept;
  // The token as the file spells it (byte-level alphabet; content of an added token); empty for an unknown id.
  [[nodiscard]] std::string token_spelling(TokenId id) const;
  // Flagged special in the file. NOTE: role, think and DSML tokens are not (encoding.md 1.3).
  [[nodiscard]] bool is_special(TokenId id) const noexcept;
  [[nodiscard]] bool is_added(TokenId id) const noexcept;
  // The added token with exactly this content.
  [[nodiscard]] std::optional<TokenId> find_added(std::string_view content) const;
  // Every added token, ascending ids.
  [[nodiscard]] std::span<const AddedToken> added_tokens() const noexcept { return added_; }

  [[nodiscard]] TokenId bos() const noexcept { return bos_; }
  [[nodiscard]] TokenId eos() const noexcept { return eos_; }
  // Ascending ids that sampling must mask: multimodal placeholders, which are never legal output (encoding.md 1.3).
  [[nodiscard]] std::span<const TokenId> never_sampled() const noexcept { return never_sampled_; }

 private:
  struct Token {
    uint32_t offset = 0;  // in Tokens::bytes
    uint32_t length = 0;
    bool is_added = false;
    bool is_special = false;
    bool is_spelled_raw = false;  // its spelling is its bytes, not the byte-level alphabet
  };
  struct Tokens {
    std::string bytes;
    std::vector<Token> entries;  // by id
    [[nodiscard]] std::string_view bytes_of(const Token& token) const noexcept {
      return std::string_view(bytes).substr(token.offset, token.length);
    }
  };

  explicit Tokenizer(TokenizerFile&& file);
  static Tokens place_tokens(const TokenizerFile& file);
  static Bpe build_bpe(const TokenizerFile& file, const Tokens& tokens);
  void encode_plain(std::string_view text, std::vector<TokenId>& out) const;

  Tokens tokens_;
  Bpe bpe_;
  std::vector<AddedToken> added_;
  std::unordered_map<std::string_view, TokenId> id_of_content_;  // views into added_
  TokenTrie raw_trie_;                                           // normalized=false: cut first, over the whole text
  TokenTrie normalized_trie_;                                    // normalized=true: cut from what is left
  std::vector<TokenId> never_sampled_;
  TokenId bos_ = 0;
  TokenId eos_ = 0;
};

}  // namespace ps::text
