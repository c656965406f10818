#include "text/token_map.h"

#include <utf8proc.h>

#include <unordered_map>
#include <utility>

#include "base/macros.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace ps::text {
namespace {

constexpr char32_t kBlankGuard = 0xE000;  // stands for the text " " while blanks are trimmed

// NFD of NFKC, which is the compatibility decomposition in canonical order.
std::vector<utf8proc_int32_t> decompose(std::string_view text) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto size = static_cast<utf8proc_ssize_t>(text.size());
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  std::vector<utf8proc_int32_t> codes(text.size() + 1);
  for (;;) {
    const auto room = static_cast<utf8proc_ssize_t>(codes.size());
    const utf8proc_ssize_t count = utf8proc_decompose(bytes, size, codes.data(), room, options);
    PS_CHECK(count >= 0, utf8proc_errmsg(count));
    const bool fits = count <= room;
    codes.resize(static_cast<size_t>(count));
    if (fits) return codes;
  }
}

bool is_mark(utf8proc_int32_t code) {
  const utf8proc_category_t category = utf8proc_category(code);
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME;
}

bool is_joined_blank(char32_t code) { return code == ' ' || code == '\t' || code == '\r' || code == '\n'; }

}  // namespace

std::string engram_normalize(std::string_view text) {
  std::u32string codes;
  for (const utf8proc_int32_t code : decompose(text)) {
    if (is_mark(code)) continue;
    const auto lower = static_cast<char32_t>(utf8proc_tolower(code));
    if (!is_joined_blank(lower)) {
      codes += lower;
    } else if (codes.empty() || codes.back() != ' ') {
      codes += ' ';
    }
  }
  if (codes == U" ") codes = kBlankGuard;
  size_t begin = 0;
  size_t end = codes.size();
  while (begin < end && is_white_space(codes[begin])) ++begin;
  while (end > begin && is_white_space(codes[end - 1])) --end;
  std::string normalized;
  for (size_t i = begin; i < end; ++i) append_utf8(normalized, codes[i] == kBlankGuard ? U' ' : codes[i]);
  return normalized;
}

TokenMap engram_token_map(const Tokenizer& tokenizer) {
  TokenMap map;
  map.class_of.reserve(static_cast<size_t>(tokenizer.vocab_size()));
  std::unordered_map<std::string, int32_t> class_of_key;
  class_of_key.reserve(static_cast<size_t>(tokenizer.vocab_size()));
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    std::string text = lossy_utf8(tokenizer.token_bytes(id));
    std::string key;
    if (text.find(kReplacement) != std::string::npos) {
      key = tokenizer.token_spelling(id);
    } else {
      key = engram_normalize(text);
      if (key.empty()) key = std::move(text);
    }
    const auto [entry, is_first] = class_of_key.emplace(std::move(key), map.classes);
    if (is_first) ++map.classes;
    map.class_of.push_back(entry->second);
  }
  return map;
}

}  // namespace ps::text
