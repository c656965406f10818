#include "base/number_formats.h"

#include <array>

namespace ps {
namespace {

constexpr float decode_e4m3(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
  const uint32_t exponent = (code >> 3) & 15u;
  const uint32_t mantissa = code & 7u;
  if (exponent == 15 && mantissa == 7) return std::bit_cast<float>(sign | 0x7FC00000u);
  if (exponent == 0) {  // subnormal: mantissa * 2^-9, exact
    const float magnitude = static_cast<float>(mantissa) * 0x1p-9f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 120u) << 23) | (mantissa << 20));
}

constexpr std::array<float, 256> kE4M3 = [] {
  std::array<float, 256> table{};
  for (int code = 0; code < 256; ++code) table[static_cast<size_t>(code)] = decode_e4m3(static_cast<uint8_t>(code));
  return table;
}();

}  // namespace

std::string_view dtype_name(DType type) noexcept {
  switch (type) {
    case DType::kF32: return "F32";
    case DType::kBF16: return "BF16";
    case DType::kF8E4M3: return "F8_E4M3";
    case DType::kF8E8M0: return "F8_E8M0";
    case DType::kI8: return "I8";
    case DType::kI32: return "I32";
    case DType::kI64: return "I64";
  }
  return "?";
}

float e4m3_to_float(uint8_t code) noexcept { return kE4M3[code]; }

uint8_t float_to_e4m3(float value) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint8_t sign = static_cast<uint8_t>((bits >> 24) & 0x80u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return sign | 0x7F;
  if (magnitude >= 0x43E00000u) return sign | 0x7E;  // >= 448
  if (magnitude < 0x3C800000u) {                     // below 2^-6: multiples of 2^-9, rounded in integers
    const uint32_t exponent = magnitude >> 23;
    if (exponent < 116) return sign;  // below 2^-11: less than half a step
    const uint32_t significand = (magnitude & 0x7FFFFFu) | 0x800000u;
    const uint32_t shift = 141u - exponent;  // significand * 2^(exponent-150) / 2^-9
    const uint32_t whole = significand >> shift;
    const uint32_t rest = significand & ((1u << shift) - 1u);
    const uint32_t half = 1u << (shift - 1u);
    return static_cast<uint8_t>(sign | (whole + ((rest > half || (rest == half && (whole & 1u))) ? 1u : 0u)));
  }
  const uint32_t rounded = magnitude + 0x7FFFFu + ((magnitude >> 20) & 1u);
  return static_cast<uint8_t>(sign | ((rounded >> 20) - (120u << 3)));
}

}  // namespace ps
