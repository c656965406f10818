#include "ops/ref_rows.h"

#include <cstring>

#include "base/number_formats.h"
#include "base/quantize.h"

namespace ps::ops::ref {
namespace {

// Weights lie where the file put them, so a value is copied out rather than dereferenced.
template <typename T>
T read(const std::byte* data, int64_t index) noexcept {
  T value;
  std::memcpy(&value, data + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

}  // namespace

void load_values(const ConstActivations& x, int64_t row, int64_t first, int64_t count, float* out) noexcept {
  if (x.dtype == DType::kF32) {
    std::copy_n(static_cast<const float*>(x.data) + row * x.stride + first, count, out);
    return;
  }
  const bf16* values = static_cast<const bf16*>(x.data) + row * x.stride + first;
  for (int64_t i = 0; i < count; ++i) out[i] = to_float(values[i]);
}

void store_values(const Activations& y, int64_t row, int64_t first, int64_t count, const float* values) noexcept {
  for (int64_t i = 0; i < count; ++i) store(y, row, first + i, values[i]);
}

void load_padded_row(const ConstActivations& x, int64_t row, float* out) noexcept {
  load_values(x, row, 0, x.columns, out);
  std::fill(out + x.columns, out + padded(x.columns), 0.0f);
}

void decode_weights(const Weight& w, int64_t n, int64_t first, int64_t count, float* out) noexcept {
  const int64_t at = n * w.columns + first;
  const int64_t block = first / kMxGroup;
  const int64_t blocks = w.columns / kMxGroup;
  const uint8_t* codes = reinterpret_cast<const uint8_t*>(w.data);
  switch (w.format) {
    case WeightFormat::kF32:
      for (int64_t i = 0; i < count; ++i) out[i] = read<float>(w.data, at + i);
      return;
    case WeightFormat::kBF16:
      for (int64_t i = 0; i < count; ++i) out[i] = to_float(read<bf16>(w.data, at + i));
      return;
    case WeightFormat::kFp8Block32:
      for (int64_t i = 0; i < count; i += kMxGroup) {
        dequantize_mxfp8(codes + at + i, w.scale[n / kMxGroup * blocks + block + i / kMxGroup], out + i);
      }
      return;
    case WeightFormat::kFp4Block32:
      for (int64_t i = 0; i < count; i += kMxGroup) {
        dequantize_mxfp4(codes + (at + i) / 2, w.scale[n * blocks + block + i / kMxGroup], out + i);
      }
      return;
  }
}

void decode_panel(const Weight& w, int64_t first, float* panel) noexcept {
  const int64_t rows = std::min(kPanelRows, w.rows - first);
  for (int64_t k = 0; k < w.columns; k += kDotBlock) {
    std::array<float, kPanelRows * kDotBlock> block{};
    const int64_t columns = std::min(kDotBlock, w.columns - k);
    for (int64_t lane = 0; lane < rows; ++lane) {
      decode_weights(w, first + lane, k, columns, block.data() + lane * kDotBlock);
    }
    for (int64_t i = 0; i < kDotBlock; ++i) {
      for (int64_t lane = 0; lane < kPanelRows; ++lane) *panel++ = block[static_cast<size_t>(lane * kDotBlock + i)];
    }
  }
}

std::array<float, kPanelRows> panel_dot(const float* panel, const float* x, int64_t padded_columns) noexcept {
  std::array<float, kPanelRows> dots{};
  for (int64_t block = 0; block < padded_columns; block += kDotBlock) {
    float even[kPanelRows] = {};
    float odd[kPanelRows] = {};
    for (int64_t k = block; k < block + kDotBlock; k += 2) {
      const float* row = panel + k * kPanelRows;
      for (int64_t lane = 0; lane < kPanelRows; ++lane) even[lane] = std::fma(x[k], row[lane], even[lane]);
      row += kPanelRows;
      for (int64_t lane = 0; lane < kPanelRows; ++lane) odd[lane] = std::fma(x[k + 1], row[lane], odd[lane]);
    }
    for (int64_t lane = 0; lane < kPanelRows; ++lane) dots[static_cast<size_t>(lane)] += even[lane] + odd[lane];
  }
  return dots;
}

}  // namespace ps::ops::ref
