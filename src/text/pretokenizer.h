// The three fixed splits of the tokenizer (encoding.md 1.2 item 3), as one scanner without a regular-expression engine:
//   \p{N}{1,3}   then   [U+4E00-9FA5 U+3040-309F U+30A0-30FF]+   then   six alternatives, on every piece so far
// Character classes come from utf8proc, \s is Unicode White_Space. Time is linear for every input.
// A byte that is not part of valid UTF-8 is a piece of its own, and ends the piece before it.
// Threading: pure functions; the class table is built once, on first use.
#pragma once

#include <cstddef>
#include <string_view>

namespace ps::text {

// Where the piece that starts at `begin` ends. Pieces are consecutive: call again with the result until text.size().
// REQUIRES: begin < text.size(), and begin is 0 or the end of another piece.
[[nodiscard]] size_t piece_end(std::string_view text, size_t begin) noexcept;

// The regular expressions that this scanner implements, as tokenizer.json spells them.
inline constexpr std::string_view kSplitPatterns[3] = {
    R"re(\p{N}{1,3})re",
    "[一-龥぀-ゟ゠-ヿ]+",
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^)re"
    "\r\n"
    R"re(\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[)re"
    "\r\n"
    R"re(]*|\s*[)re"
    "\r\n"
    R"re(]+|\s+(?!\S)|\s+)re",
};

}  // namespace ps::text
