// Building blocks of the scalar reference: activations as float rows, weights decoded in panels of rows, and their
// product in the canonical order of linear.h. Internal to the reference backend.
//
// A panel holds kPanelRows rows of W side by side, panel[k * kPanelRows + lane], so that one pass over a row of x gives
// kPanelRows dot products. Each lane is the scalar loop of canonical_dot: lanes never meet, so neither the panel a row
// of W falls into nor the rows of x that share a call can change a result. REQUIRES: everything that computes runs
// inside ThreadPool::parallel_for (subnormals count as zero).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "ops/exec.h"
#include "ops/numerics.h"
#include "ops/views.h"

namespace ps::ops::ref {

inline constexpr int64_t kPanelRows = 16;
inline constexpr int64_t kChunkRows = 256;  // rows of x held as floats at a time

// Columns with the zero padding of the canonical dot product.
[[nodiscard]] constexpr int64_t padded(int64_t columns) noexcept {
  return (columns + kDotBlock - 1) / kDotBlock * kDotBlock;
}

[[nodiscard]] inline const void* element(const ConstActivations& x, int64_t row, int64_t column) noexcept {
  return static_cast<const std::byte*>(x.data) + (row * x.stride + column) * dtype_bytes(x.dtype);
}

// Columns [first, first + count) of x.
[[nodiscard]] inline ConstActivations columns_of(const ConstActivations& x, int64_t first, int64_t count) noexcept {
  ConstActivations part = x;
  part.data = element(x, 0, first);
  part.columns = count;
  return part;
}

// Row of x widened to float, followed by zeros up to padded(columns).
void load_padded_row(const ConstActivations& x, int64_t row, float* out) noexcept;

// x[row][first ...] widened to float, `count` values; and back, rounded to y's dtype.
void load_values(const ConstActivations& x, int64_t row, int64_t first, int64_t count, float* out) noexcept;
void store_values(const Activations& y, int64_t row, int64_t first, int64_t count, const float* values) noexcept;

// W[n][first ...] as floats, `count` values: code * 2^(scale - 127), exact in BF16. A product that is subnormal counts
// as zero, as it does in the dot product; one that is normal is kept also where the scale alone is subnormal (code 0).
// Scale 255 gives NaN. REQUIRES: first and count are multiples of 32 if W is quantized.
void decode_weights(const Weight& w, int64_t n, int64_t first, int64_t count, float* out) noexcept;

// Rows [first, first + kPanelRows) of W in panel order, zero where W has no more rows or columns.
// `panel` has room for kPanelRows * padded(w.columns) values.
void decode_panel(const Weight& w, int64_t first, float* panel) noexcept;

// The canonical dot product of x with each row of the panel.
[[nodiscard]] std::array<float, kPanelRows> panel_dot(const float* panel, const float* x,
                                                      int64_t padded_columns) noexcept;

// Calls emit(t, n, dot(row t of x, row n of W)) for t in [0, rows), from several threads, once for every (t, n).
// x has `rows` rows of padded(w.columns) values; `panels` has room for one panel per thread.
template <typename Emit>
void multiply(const float* x, int64_t rows, const Weight& w, float* panels, Exec& exec, const Emit& emit) {
  const int64_t columns = padded(w.columns);
  exec.pool.parallel_for((w.rows + kPanelRows - 1) / kPanelRows, 1, [&](int64_t begin, int64_t end, int worker) {
    float* panel = panels + worker * kPanelRows * columns;
    for (int64_t at = begin; at < end; ++at) {
      const int64_t first = at * kPanelRows;
      const int64_t count = std::min(kPanelRows, w.rows - first);
      decode_panel(w, first, panel);
      for (int64_t t = 0; t < rows; ++t) {
        const std::array<float, kPanelRows> dots = panel_dot(panel, x + t * columns, columns);
        for (int64_t lane = 0; lane < count; ++lane) emit(t, first + lane, dots[static_cast<size_t>(lane)]);
      }
    }
  });
}

}  // namespace ps::ops::ref
