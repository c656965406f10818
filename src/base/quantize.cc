#include "base/quantize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/number_formats.h"

namespace ps {
namespace {

constexpr float kInverse448 = 1.0f / 448.0f;
constexpr float kInverse6 = 1.0f / 6.0f;

// Ordered by bits, in which NaN lies above infinity: a NaN in the group wins, also over the floor, because
// std::max(NaN, floor) is NaN.
template <int kGroup>
float amax(const float* x) noexcept {
  uint32_t largest = 0;
  for (int i = 0; i < kGroup; ++i) largest = std::max(largest, std::bit_cast<uint32_t>(std::fabs(x[i])));
  return std::bit_cast<float>(largest);
}

// Dividing by a power of two and multiplying by its inverse are the same operation. The inverse of 2^127 would be
// subnormal, but no scale is that large. 255 (NaN) gives NaN.
float divide_by_scale(float value, uint8_t scale) noexcept {
  if (scale == 255) return e8m0_to_float(255);
  return flush_subnormal(value) * e8m0_to_float(static_cast<uint8_t>(254 - scale));
}

template <int kGroup>
void pack_e2m1(const float (&scaled)[kGroup], uint8_t* packed) noexcept {
  for (int i = 0; i < kGroup; i += 2) {
    packed[i / 2] = static_cast<uint8_t>(float_to_e2m1(scaled[i]) | (float_to_e2m1(scaled[i + 1]) << 4));
  }
}

}  // namespace

uint8_t quantize_mxfp8(const float* x, uint8_t* codes) noexcept {
  const uint8_t scale = e8m0_ceil(std::max(amax<kMxGroup>(x), 1e-4f) * kInverse448);
  for (int i = 0; i < kMxGroup; ++i) codes[i] = float_to_e4m3(divide_by_scale(x[i], scale));
  return scale;
}

uint8_t quantize_mxfp4(const float* x, uint8_t* packed) noexcept {
  const uint8_t scale = e8m0_ceil(std::max(amax<kMxGroup>(x), 6.0f * 0x1p-126f) * kInverse6);
  float scaled[kMxGroup];
  for (int i = 0; i < kMxGroup; ++i) scaled[i] = divide_by_scale(x[i], scale);
  pack_e2m1(scaled, packed);
  return scale;
}

uint8_t quantize_compressed(const float* x, uint8_t* packed) noexcept {
  const uint8_t code = float_to_e4m3(std::max(amax<kCompressedGroup>(x), 6.0f * 0x1p-9f) / 6.0f);
  const float scale = e4m3_to_float(code);
  float scaled[kCompressedGroup];
  for (int i = 0; i < kCompressedGroup; ++i) scaled[i] = x[i] / scale;
  pack_e2m1(scaled, packed);
  return code;
}

void dequantize_mxfp8(const uint8_t* codes, uint8_t scale, float* values) noexcept {
  for (int i = 0; i < kMxGroup; ++i) values[i] = scale_by_e8m0(e4m3_to_float(codes[i]), scale);
}

void dequantize_mxfp4(const uint8_t* packed, uint8_t scale, float* values) noexcept {
  for (int i = 0; i < kMxGroup; ++i) values[i] = scale_by_e8m0(e2m1_to_float(fp4_nibble(packed, i)), scale);
}

void dequantize_compressed(const uint8_t* packed, uint8_t scale, float* values) noexcept {
  const float factor = e4m3_to_float(scale);
  for (int i = 0; i < kCompressedGroup; ++i) values[i] = e2m1_to_float(fp4_nibble(packed, i)) * factor;
}

void fake_quantize_mxfp8(float* row, int64_t size) noexcept {
  std::array<uint8_t, kMxGroup> codes;
  for (int64_t at = 0; at < size; at += kMxGroup) {
    const uint8_t scale = quantize_mxfp8(row + at, codes.data());
    dequantize_mxfp8(codes.data(), scale, row + at);
  }
}

void fake_quantize_mxfp4(float* row, int64_t size) noexcept {
  std::array<uint8_t, kMxGroup / 2> packed;
  for (int64_t at = 0; at < size; at += kMxGroup) {
    const uint8_t scale = quantize_mxfp4(row + at, packed.data());
    dequantize_mxfp4(packed.data(), scale, row + at);
  }
}

void fake_quantize_compressed(float* row, int64_t size) noexcept {
  std::array<uint8_t, kCompressedGroup / 2> packed;
  for (int64_t at = 0; at < size; at += kCompressedGroup) {
    const uint8_t scale = quantize_compressed(row + at, packed.data());
    dequantize_compressed(packed.data(), scale, row + at);
  }
}

}  // namespace ps
