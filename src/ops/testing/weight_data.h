// Test weights in every format, with an own decoder: E4M3, E2M1 and E8M0 from their definitions (model.md 1.4), in F64.
#pragma once

#include <array>

#include "ops/testing/op_fixture.h"

namespace ps::ops::test {

inline constexpr WeightFormat kAllFormats[] = {WeightFormat::kF32, WeightFormat::kBF16, WeightFormat::kFp8Block32,
                                               WeightFormat::kFp4Block32};

inline std::string format_text(WeightFormat format) {
  constexpr const char* kNames[] = {"f32", "bf16", "fp8", "fp4"};
  return kNames[static_cast<int>(format)];
}

inline double e4m3_value(uint8_t code) {
  const int exponent = (code >> 3) & 15;
  const int mantissa = code & 7;
  if (exponent == 15 && mantissa == 7) return std::nan("");
  const double magnitude = exponent == 0 ? mantissa * 0x1p-9 : std::ldexp(8 + mantissa, exponent - 10);
  return code >= 128 ? -magnitude : magnitude;
}

inline double e2m1_value(uint8_t nibble) {
  const int exponent = (nibble >> 1) & 3;
  const int mantissa = nibble & 1;
  const double magnitude = exponent == 0 ? mantissa * 0.5 : std::ldexp(2 + mantissa, exponent - 2);
  return nibble >= 8 ? -magnitude : magnitude;
}

// code * 2^(scale - 127); subnormal floats count as zero.
inline float scaled_value(double code, uint8_t scale) {
  if (scale == 255) return std::numeric_limits<float>::quiet_NaN();
  const double value = std::ldexp(code, scale - 127);
  return std::fabs(value) < 0x1p-126 ? std::copysign(0.0f, static_cast<float>(code)) : static_cast<float>(value);
}

// A weight matrix with its storage.
class WeightData {
 public:
  WeightData() = default;
  WeightData(WeightFormat format, int64_t rows, int64_t columns)
      : format_(format),
        rows_(rows),
        columns_(columns),
        data_(static_cast<size_t>(data_bytes())),
        scales_(static_cast<size_t>(scale_count()), uint8_t{127}) {}

  [[nodiscard]] Weight view() const {
    return {format_, rows_, columns_, data_.data(), is_quantized(format_) ? scales_.data() : nullptr};
  }
  [[nodiscard]] WeightFormat format() const { return format_; }
  [[nodiscard]] int64_t rows() const { return rows_; }
  [[nodiscard]] int64_t columns() const { return columns_; }
  [[nodiscard]] std::vector<uint8_t>& scales() { return scales_; }

  // REQUIRES: unquantized.
  void set(int64_t n, int64_t k, float value) {
    const auto at = static_cast<size_t>(n * columns_ + k);
    const bf16 half = to_bf16(value);
    if (format_ == WeightFormat::kF32) std::memcpy(data_.data() + at * 4, &value, 4);
    else std::memcpy(data_.data() + at * 2, &half, 2);
  }
  // REQUIRES: quantized. An E2M1 code is the low four bits.
  void set_code(int64_t n, int64_t k, uint8_t code) {
    const int64_t at = n * columns_ + k;
    if (format_ == WeightFormat::kFp8Block32) {
      data_[static_cast<size_t>(at)] = std::byte{code};
      return;
    }
    std::byte& pair = data_[static_cast<size_t>(at / 2)];
    pair =
        at % 2 == 0 ? (pair & std::byte{0xF0}) | std::byte(code & 15) : (pair & std::byte{0x0F}) | std::byte(code << 4);
  }
  [[nodiscard]] size_t scale_index(int64_t n, int64_t k) const {
    const int64_t row = format_ == WeightFormat::kFp8Block32 ? n / 32 : n;
    return static_cast<size_t>(row * (columns_ / 32) + k / 32);
  }

  [[nodiscard]] float at(int64_t n, int64_t k) const {
    const int64_t index = n * columns_ + k;
    const auto at = static_cast<size_t>(index);
    switch (format_) {
      case WeightFormat::kF32: {
        float value;
        std::memcpy(&value, data_.data() + at * 4, 4);
        return value;
      }
      case WeightFormat::kBF16: {
        bf16 value;
        std::memcpy(&value, data_.data() + at * 2, 2);
        return to_float(value);
      }
      case WeightFormat::kFp8Block32:
        return scaled_value(e4m3_value(static_cast<uint8_t>(data_[at])), scales_[scale_index(n, k)]);
      case WeightFormat::kFp4Block32: {
        const auto pair = static_cast<uint8_t>(data_[at / 2]);
        return scaled_value(e2m1_value(at % 2 == 0 ? pair & 15 : pair >> 4), scales_[scale_index(n, k)]);
      }
    }
    return 0;
  }
  [[nodiscard]] std::vector<float> row(int64_t n) const {
    std::vector<float> values(static_cast<size_t>(columns_));
    for (int64_t k = 0; k < columns_; ++k) values[static_cast<size_t>(k)] = at(n, k);
    return values;
  }
  // The same values in another unquantized format.
  [[nodiscard]] WeightData decoded(WeightFormat format = WeightFormat::kF32) const {
    WeightData plain(format, rows_, columns_);
    for (int64_t n = 0; n < rows_; ++n) {
      for (int64_t k = 0; k < columns_; ++k) plain.set(n, k, at(n, k));
    }
    return plain;
  }

 private:
  [[nodiscard]] int64_t data_bytes() const {
    switch (format_) {
      case WeightFormat::kF32: return rows_ * columns_ * 4;
      case WeightFormat::kBF16: return rows_ * columns_ * 2;
      case WeightFormat::kFp8Block32: return rows_ * columns_;
      case WeightFormat::kFp4Block32: return rows_ * columns_ / 2;
    }
    return 0;
  }
  [[nodiscard]] int64_t scale_count() const {
    if (format_ == WeightFormat::kFp8Block32) return rows_ / 32 * (columns_ / 32);
    return format_ == WeightFormat::kFp4Block32 ? rows_ * (columns_ / 32) : 0;
  }

  WeightFormat format_ = WeightFormat::kF32;
  int64_t rows_ = 0;
  int64_t columns_ = 0;
  std::vector<std::byte> data_;
  std::vector<uint8_t> scales_;
};

// Random finite weights of about `size`: every code but NaN, scales a few powers of two apart.
inline WeightData random_weight(Pcg64& random, WeightFormat format, int64_t rows, int64_t columns, double size = 1.0,
                                Data data = Data::kNormal) {
  WeightData weight(format, rows, columns);
  const int exponent = static_cast<int>(std::lround(std::log2(size)));
  const int largest = format == WeightFormat::kFp8Block32 ? -6 : -1;  // brings codes to about 1
  for (uint8_t& scale : weight.scales()) scale = static_cast<uint8_t>(127 + exponent + largest + random.integer(-3, 2));
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t k = 0; k < columns; ++k) {
      if (!is_quantized(format)) {
        weight.set(n, k, random_value(random, data) * static_cast<float>(size));
        continue;
      }
      auto code = static_cast<uint8_t>(random.integer(0, 256));
      if (format == WeightFormat::kFp8Block32 && (code & 0x7F) == 0x7F) code ^= 1;
      weight.set_code(n, k, code);
    }
  }
  return weight;
}

}  // namespace ps::ops::test
