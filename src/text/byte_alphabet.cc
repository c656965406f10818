#include "text/byte_alphabet.h"

#include <array>

#include "text/utf8.h"

namespace ps::text {
namespace {

constexpr char32_t kSymbolLimit = 0x100 + 68;

struct Alphabet {
  std::array<char32_t, 256> symbol{};
  std::array<int16_t, kSymbolLimit> byte{};  // -1: not a symbol

  constexpr Alphabet() {
    for (auto& entry : byte) entry = -1;
    char32_t next = 0x100;
    for (unsigned value = 0; value < 256; ++value) {
      const bool printable = (value >= 0x21 && value <= 0x7E) || (value >= 0xA1 && value <= 0xAC) || value >= 0xAE;
      symbol[value] = printable ? value : next++;
      byte[symbol[value]] = static_cast<int16_t>(value);
    }
  }
};

constexpr Alphabet kAlphabet;

}  // namespace

char32_t byte_symbol(uint8_t byte) noexcept { return kAlphabet.symbol[byte]; }

std::string spell_bytes(std::string_view bytes) {
  std::string spelling;
  for (const char byte : bytes) append_utf8(spelling, byte_symbol(static_cast<uint8_t>(byte)));
  return spelling;
}

std::optional<std::string> unspell_bytes(std::string_view spelling) {
  std::string bytes;
  for (size_t at = 0; at < spelling.size();) {
    const Utf8Step step = utf8_step(spelling.data() + at, spelling.size() - at);
    if (step.kind != Utf8Step::Kind::kValid || step.code >= kSymbolLimit) return std::nullopt;
    const int16_t byte = kAlphabet.byte[step.code];
    if (byte < 0) return std::nullopt;
    bytes += static_cast<char>(byte);
    at += step.length;
  }
  return bytes;
}

}  // namespace ps::text
