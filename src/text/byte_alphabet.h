// The byte-level alphabet in which a vocabulary is spelled: printable Latin-1 bytes stand for themselves, the other 68
// bytes for U+0100 upward in byte order (encoding.md 1.2 item 4). Pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ps::text {

// The character that stands for a byte.
[[nodiscard]] char32_t byte_symbol(uint8_t byte) noexcept;

// Bytes -> spelling, one character per byte.
[[nodiscard]] std::string spell_bytes(std::string_view bytes);

// Spelling -> bytes; empty when a character is outside the alphabet. REQUIRES: spelling is valid UTF-8.
[[nodiscard]] std::optional<std::string> unspell_bytes(std::string_view spelling);

}  // namespace ps::text
