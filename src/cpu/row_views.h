// Rows of op arguments as the row kernels take them, and how rows are cut over threads. Internal to the backend.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/row_kernels.h"
#include "ops/views.h"

namespace ps::cpu {

inline constexpr int64_t kPieceValues = 16384;  // of rows that one thread takes at a time: some microseconds

// Rows of one piece, each `values` values of work.
[[nodiscard]] inline int64_t row_grain(int64_t values) noexcept {
  return std::max<int64_t>(1, kPieceValues / std::max<int64_t>(1, values));
}

[[nodiscard]] inline RowView row_of(const ops::ConstActivations& x, int64_t row, int64_t column = 0) noexcept {
  const auto* data = static_cast<const std::byte*>(x.data);
  return {data + (row * x.stride + column) * dtype_bytes(x.dtype), x.dtype == DType::kF32};
}
[[nodiscard]] inline MutableRow row_of(const ops::Activations& x, int64_t row, int64_t column = 0) noexcept {
  auto* data = static_cast<std::byte*>(x.data);
  return {data + (row * x.stride + column) * dtype_bytes(x.dtype), x.dtype == DType::kF32};
}
[[nodiscard]] inline RowView row_of(const ops::Vector& x) noexcept { return {x.data, x.dtype == DType::kF32}; }
// Of an unquantized weight.
[[nodiscard]] inline RowView row_of(const ops::Weight& w, int64_t row) noexcept {
  const bool is_f32 = w.format == ops::WeightFormat::kF32;
  return {w.data + row * w.columns * (is_f32 ? 4 : 2), is_f32};
}

}  // namespace ps::cpu
