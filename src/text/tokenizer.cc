#include "text/tokenizer.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/macros.h"
#include "base/mapped_file.h"
#include "text/byte_alphabet.h"
#include "text/markup.h"
#include "text/pretokenizer.h"
#include "text/utf8.h"

namespace ps::text {
namespace {

constexpr int64_t kFileLimitBytes = 64 << 20;

// Multimodal slots: ids 128847..129270 and 129279 of the released file.
bool is_multimodal_slot(std::string_view content) {
  constexpr std::string_view kNames[] = {"<｜rl_image_pad｜>", "<｜rl_image_start｜>", markup::kModelImage,
                                         markup::kRecipeImage};
  return (content.starts_with("<|place_holder_mm_span_") && content.ends_with("|>")) ||
         std::find(std::begin(kNames), std::end(kNames), content) != std::end(kNames);
}

// Calls on_gap(begin, end) and on_match(id), in order, for text[from..] cut at every match of the trie that
// is_allowed(begin, end).
template <typename IsAllowed, typename OnGap, typename OnMatch>
void cut(std::string_view text, size_t from, const TokenTrie& trie, const IsAllowed& is_allowed, const OnGap& on_gap,
         const OnMatch& on_match) {
  while (from < text.size()) {
    TokenTrie::Match match = trie.find(text, from);
    while (match.id >= 0 && !is_allowed(match.begin, match.end)) match = trie.find(text, match.begin + 1);
    const size_t gap_end = match.id < 0 ? text.size() : match.begin;
    if (gap_end > from) on_gap(from, gap_end);
    if (match.id < 0) return;
    on_match(match.id);
    from = match.end;
  }
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::load(const std::filesystem::path& path) {
  PS_TRY(const std::string json, read_file(path, kFileLimitBytes));
  return parse(json).with(path.string());
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::parse(std::string_view json) {
  PS_TRY(TokenizerFile file, parse_tokenizer_file(json));
  std::shared_ptr<Tokenizer> tokenizer(new Tokenizer(std::move(file)));
  for (const auto& [content, id] :
       {std::pair{markup::kBos, &tokenizer->bos_}, std::pair{markup::kEos, &tokenizer->eos_}}) {
    const auto found = tokenizer->find_added(content);
    if (!found) return Status::unsupported("added_tokens: " + std::string(content) + " is missing");
    *id = *found;
  }
  return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
}

Tokenizer::Tokenizer(TokenizerFile&& file)
    : tokens_(place_tokens(file)), bpe_(build_bpe(file, tokens_)), added_(std::move(file.added)) {
  for (const AddedToken& token : added_) {
    id_of_content_.emplace(token.content, token.id);
    (token.is_normalized ? normalized_trie_ : raw_trie_).add(token.content, token.id);
    if (is_multimodal_slot(token.content)) never_sampled_.push_back(token.id);
  }
}

Tokenizer::Tokens Tokenizer::place_tokens(const TokenizerFile& file) {
  Tokens tokens;
  tokens.entries.resize(file.base.size());
  auto added = file.added.begin();
  for (size_t id = 0; id < file.base.size(); ++id) {
    Token& token = tokens.entries[id];
    std::string bytes;
    if (added != file.added.end() && added->id == static_cast<TokenId>(id)) {
      bytes = added->content;
      token.is_added = true;
      token.is_special = added->is_special;
      token.is_spelled_raw = true;
      ++added;
    } else if (auto unspelled = unspell_bytes(file.base[id])) {
      bytes = *std::move(unspelled);
    } else {
      bytes = file.base[id];
      token.is_spelled_raw = true;
    }
    token.offset = static_cast<uint32_t>(tokens.bytes.size());
    token.length = static_cast<uint32_t>(bytes.size());
    tokens.bytes += bytes;
  }
  return tokens;
}

Bpe Tokenizer::build_bpe(const TokenizerFile& file, const Tokens& tokens) {
  std::array<TokenId, 256> byte_ids{};
  std::vector<std::string_view> token_bytes(file.base.size());
  for (size_t id = 0; id < file.base.size(); ++id) {
    const auto bytes = unspell_bytes(file.base[id]);
    if (!bytes || bytes->empty()) continue;
    if (bytes->size() == 1) byte_ids[static_cast<uint8_t>((*bytes)[0])] = static_cast<TokenId>(id);
    if (!tokens.entries[id].is_spelled_raw) token_bytes[id] = tokens.bytes_of(tokens.entries[id]);
  }
  return Bpe(file.merges, byte_ids, token_bytes);
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, AddedTokens mode) const {
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3 + 8);
  encode(text, mode, ids);
  return ids;
}

void Tokenizer::encode(std::string_view text, AddedTokens mode, std::vector<TokenId>& out) const {
  PS_CHECK(text.size() < INT32_MAX, text.size());
  if (mode == AddedTokens::kAsText) return encode_plain(text, out);
  encode(text, 0, {}, out);
}

void Tokenizer::encode(std::string_view text, size_t from, std::span<const TextRange> literal,
                       std::vector<TokenId>& out) const {
  PS_CHECK(text.size() < INT32_MAX, text.size());
  const auto is_allowed = [literal](size_t begin, size_t end) {
    const auto next = std::upper_bound(literal.begin(), literal.end(), begin,
                                       [](size_t offset, const TextRange& range) { return offset < range.end; });
    return next == literal.end() || next->begin >= end;
  };
  const auto append = [&out](TokenId id) { out.push_back(id); };
  const auto encode_rest = [&](size_t begin, size_t end) { encode_plain(text.substr(begin, end - begin), out); };
  const auto cut_normalized = [&](size_t begin, size_t end) {
    cut(text.substr(0, end), begin, normalized_trie_, is_allowed, encode_rest, append);
  };
  cut(text, from, raw_trie_, is_allowed, cut_normalized, append);
}

void Tokenizer::encode_plain(std::string_view text, std::vector<TokenId>& out) const {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = piece_end(text, begin);
    bpe_.encode(text.substr(begin, end - begin), out);
    begin = end;
  }
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  return lossy_utf8(decode_bytes(ids, skip_special));
}

std::string Tokenizer::decode_bytes(std::span<const TokenId> ids, bool skip_special) const {
  std::string bytes;
  for (const TokenId id : ids) {
    if (!(skip_special && is_special(id))) bytes += token_bytes(id);
  }
  return bytes;
}

std::string_view Tokenizer::token_bytes(TokenId id) const noexcept {
  return is_known(id) ? tokens_.bytes_of(tokens_.entries[static_cast<size_t>(id)]) : std::string_view();
}

std::string Tokenizer::token_spelling(TokenId id) const {
  if (!is_known(id)) return {};
  const Token& token = tokens_.entries[static_cast<size_t>(id)];
  const std::string_view bytes = tokens_.bytes_of(token);
  return token.is_spelled_raw ? std::string(bytes) : spell_bytes(bytes);
}

bool Tokenizer::is_special(TokenId id) const noexcept {
  return is_known(id) && tokens_.entries[static_cast<size_t>(id)].is_special;
}

bool Tokenizer::is_added(TokenId id) const noexcept {
  return is_known(id) && tokens_.entries[static_cast<size_t>(id)].is_added;
}

std::optional<TokenId> Tokenizer::find_added(std::string_view content) const {
  const auto found = id_of_content_.find(content);
  if (found == id_of_content_.end()) return std::nullopt;
  return found->second;
}

}  // namespace ps::text
