// Non-owning views that op arguments are made of: activations, weights, vectors. Trivially copyable.
//
// An activation buffer is BF16 in native compute and F32 in f32 compute. Ops widen what they load and round what they
// store to the view's dtype, so the rounding points of model.md 2 are exactly the stores, and f32 compute is the same
// code without roundings.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/number_formats.h"

namespace ps::ops {

// What is known about the values of an activation buffer beyond their dtype.
enum class Grid : uint8_t {
  kNone,
  kMxfp8,  // every 32-group along the last axis holds E4M3 codes times one power of two (quantize_mxfp8 wrote it)
};

// [rows, columns], `stride` elements from row to row. data may be read through const views only.
struct ConstActivations {
  const void* data = nullptr;
  DType dtype = DType::kBF16;  // kBF16 or kF32
  Grid grid = Grid::kNone;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;
};

struct Activations {
  void* data = nullptr;
  DType dtype = DType::kBF16;  // kBF16 or kF32
  Grid grid = Grid::kNone;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;

  operator ConstActivations() const noexcept {  // NOLINT(google-explicit-constructor)
    return {data, dtype, grid, rows, columns, stride};
  }
};

// Element access for scalar code.
[[nodiscard]] inline float load(const ConstActivations& x, int64_t row, int64_t column) noexcept {
  const int64_t at = row * x.stride + column;
  return x.dtype == DType::kF32 ? static_cast<const float*>(x.data)[at]
                                : to_float(static_cast<const bf16*>(x.data)[at]);
}
inline void store(const Activations& y, int64_t row, int64_t column, float value) noexcept {
  const int64_t at = row * y.stride + column;
  if (y.dtype == DType::kF32) {
    static_cast<float*>(y.data)[at] = value;
  } else {
    static_cast<bf16*>(y.data)[at] = to_bf16(value);
  }
}
// What store() followed by load() gives: an intermediate that the contract rounds to the compute dtype.
[[nodiscard]] inline float round_to(DType compute, float value) noexcept {
  return compute == DType::kF32 ? value : round_bf16(value);
}

// How a matrix W [rows N, columns K] is stored; this decides how its input is treated (design C1).
enum class WeightFormat : uint8_t {
  kF32,
  kBF16,
  kFp8Block32,  // E4M3, one E8M0 scale per 32x32 block: scale[N/32][K/32]
  kFp4Block32,  // packed E2M1 [N][K/2], low nibble first, one E8M0 scale per 32 of K: scale[N][K/32]
};
[[nodiscard]] constexpr bool is_quantized(WeightFormat format) noexcept {
  return format == WeightFormat::kFp8Block32 || format == WeightFormat::kFp4Block32;
}

// Row-major, dense, read where it lies in the mapped checkpoint. Decoded values are code * 2^(scale-127), exact in
// BF16.
struct Weight {
  WeightFormat format = WeightFormat::kBF16;
  int64_t rows = 0;     // N, outputs
  int64_t columns = 0;  // K, inputs, in values
  const std::byte* data = nullptr;
  const uint8_t* scale = nullptr;  // nullptr unless quantized
};

// Rows [first, first + count) of W. REQUIRES: first and count are multiples of 32 for kFp8Block32.
[[nodiscard]] Weight weight_rows(const Weight& weight, int64_t first, int64_t count) noexcept;

// A norm weight, bias, sink or scale, BF16 or F32.
struct Vector {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  int64_t size = 0;
};
[[nodiscard]] inline float load(const Vector& vector, int64_t index) noexcept {
  return vector.dtype == DType::kF32 ? reinterpret_cast<const float*>(vector.data)[index]
                                     : to_float(reinterpret_cast<const bf16*>(vector.data)[index]);
}

}  // namespace ps::ops
