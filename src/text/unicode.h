// The White_Space property, which utf8proc does not carry (the same in every Unicode version since 6.3).
#pragma once

namespace ps::text {

[[nodiscard]] constexpr bool is_white_space(char32_t code) noexcept {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
         code == 0x3000;
}

}  // namespace ps::text
