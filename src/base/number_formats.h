// The number formats of the checkpoint and their exact conversions (model.md 1.4, 2.1).
//
// BF16, E4M3FN (bias 7, no infinity, 0x7F/0xFF NaN), E8M0 (2^(code-127), code 0 = 2^-127, 255 = NaN) and E2M1
// (bit 3 sign; packed two per byte, low nibble first). All encoders round to nearest, ties to the even code.
// Nothing here depends on the floating-point environment: conversions work on bits, so they give the same
// result on threads that flush subnormals. Pure functions, any thread.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace ps {

// Storage types as safetensors names them. kI8 holds packed FP4 in this model.
enum class DType : uint8_t { kF32, kBF16, kF8E4M3, kF8E8M0, kI8, kI32, kI64 };

// Bytes of one element as stored (packed FP4 counts as one byte of two values).
[[nodiscard]] constexpr int64_t dtype_bytes(DType type) noexcept {
  switch (type) {
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kBF16: return 2;
    case DType::kI64: return 8;
    case DType::kF8E4M3:
    case DType::kF8E8M0:
    case DType::kI8: return 1;
  }
  return 0;
}
// "F32", "BF16", "F8_E4M3", "F8_E8M0", "I8", "I32", "I64".
[[nodiscard]] std::string_view dtype_name(DType type) noexcept;

// A stored bfloat16; arithmetic happens on the widened float.
struct bf16 {
  uint16_t bits = 0;
  friend constexpr bool operator==(bf16, bf16) = default;  // compares bits
};

[[nodiscard]] constexpr float to_float(bf16 value) noexcept {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

// Round to nearest even; NaN stays a quiet NaN with its sign.
[[nodiscard]] constexpr bf16 to_bf16(float value) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<uint16_t>((bits >> 16) | 0x0040u)};
  return {static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

// The value of `value` after a trip through BF16.
[[nodiscard]] constexpr float round_bf16(float value) noexcept { return to_float(to_bf16(value)); }

// 2^(code-127); 255 gives NaN. Exact, also for code 0. NOTE: 2^-127 is a subnormal float, which counts as zero in
// arithmetic under FlushSubnormals: multiply with scale_by_e8m0.
[[nodiscard]] constexpr float e8m0_to_float(uint8_t code) noexcept {
  if (code == 255) return std::bit_cast<float>(0x7FC00000u);
  if (code == 0) return std::bit_cast<float>(0x00400000u);
  return std::bit_cast<float>(static_cast<uint32_t>(code) << 23);
}

// A subnormal becomes the zero of its sign, as in the matrix units and under FlushSubnormals.
[[nodiscard]] constexpr float flush_subnormal(float value) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return (bits & 0x7F800000u) == 0 ? std::bit_cast<float>(bits & 0x80000000u) : value;
}

// value * 2^(code-127), exact unless the result overflows; a subnormal result is flushed.
// REQUIRES: value is zero, or half of it is normal.
[[nodiscard]] constexpr float scale_by_e8m0(float value, uint8_t code) noexcept {
  if (code == 0) return flush_subnormal(value * 0.5f * 0x1p-126f);
  return flush_subnormal(value * e8m0_to_float(code));
}

// Code of the smallest power of two >= value, read off the bits: the exponent field, plus one if any mantissa bit is
// set. Infinity and NaN give 255. REQUIRES: value is positive and normal, or NaN.
[[nodiscard]] constexpr uint8_t e8m0_ceil(float value) noexcept {
  const uint32_t bits = std::bit_cast<uint32_t>(value) & 0x7FFFFFFFu;
  const uint32_t code = (bits >> 23) + ((bits & 0x7FFFFFu) != 0 ? 1u : 0u);
  return static_cast<uint8_t>(code < 255u ? code : 255u);
}

[[nodiscard]] float e4m3_to_float(uint8_t code) noexcept;

// Saturates to +-448; NaN gives 0x7F with the sign.
[[nodiscard]] uint8_t float_to_e4m3(float value) noexcept;

// Value of the low four bits.
[[nodiscard]] constexpr float e2m1_to_float(uint8_t nibble) noexcept {
  constexpr float kMagnitude[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const float magnitude = kMagnitude[nibble & 7u];
  return (nibble & 8u) != 0 ? -magnitude : magnitude;
}

// Saturates to +-6; ties go to the even code (.25->0, .75->1, 1.25->1, 1.75->2, 2.5->2, 3.5->4, 5->4).
[[nodiscard]] constexpr uint8_t float_to_e2m1(float value) noexcept {
  const uint8_t sign = (std::bit_cast<uint32_t>(value) >> 31) != 0 ? 8 : 0;
  const float magnitude = value < 0.0f ? -value : value;
  uint8_t code = 0;
  if (magnitude > 5.0f) code = 7;
  else if (magnitude >= 3.5f) code = 6;
  else if (magnitude > 2.5f) code = 5;
  else if (magnitude >= 1.75f) code = 4;
  else if (magnitude > 1.25f) code = 3;
  else if (magnitude >= 0.75f) code = 2;
  else if (magnitude > 0.25f) code = 1;
  return static_cast<uint8_t>(sign | code);
}

// Element `index` of a packed FP4 row: even elements in the low nibble.
[[nodiscard]] constexpr uint8_t fp4_nibble(const uint8_t* packed_row, int64_t index) noexcept {
  const uint8_t byte = packed_row[index >> 1];
  return static_cast<uint8_t>((index & 1) != 0 ? byte >> 4 : byte & 15u);
}

}  // namespace ps
