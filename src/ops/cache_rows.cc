#include "ops/cache_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/number_formats.h"
#include "base/quantize.h"

namespace ps::ops {
namespace {

constexpr float kE4M3Max = 448.0f;
constexpr float kAmaxFloor = 1e-4f;

struct IndexBlock {
  std::byte* values;
  std::byte* scales;
  int64_t row;  // inside the block
};

IndexBlock locate(const IndexPlane& plane, int64_t flat_row) noexcept {
  const int64_t block = flat_row / kIndexBlockRows;
  const int64_t dim = plane.dim;
  if (plane.format == IndexFormat::kFp8) {
    std::byte* start = plane.values + block * (kIndexBlockRows * (dim + 4));
    return {start, start + kIndexBlockRows * dim, flat_row % kIndexBlockRows};
  }
  return {plane.values + block * (kIndexBlockRows * dim / 2), plane.scales + block * (kIndexBlockRows * dim / kMxGroup),
          flat_row % kIndexBlockRows};
}

// The reciprocal of the scale is exact, and finite for every number that fp8_index_scale gives.
uint8_t fp8_index_code(float value, float scale) noexcept {
  if (scale != scale) return 0x7F;  // whatever sign the value has
  return float_to_e4m3(flush_subnormal(value) * (1.0f / scale));
}

}  // namespace

void encode_row(RowFormat format, const float* values, int64_t dim, std::byte* row) noexcept {
  auto* bytes = reinterpret_cast<uint8_t*>(row);
  switch (format) {
    case RowFormat::kBF16:
      for (int64_t d = 0; d < dim; ++d) {
        const bf16 value = to_bf16(values[d]);
        std::memcpy(row + d * 2, &value, sizeof value);
      }
      return;
    case RowFormat::kMxfp8:
      for (int64_t group = 0; group < dim / kMxGroup; ++group) {
        bytes[dim + group] = quantize_mxfp8(values + group * kMxGroup, bytes + group * kMxGroup);
      }
      return;
    case RowFormat::kCompressed:
      for (int64_t group = 0; group < dim / kCompressedGroup; ++group) {
        bytes[dim / 2 + group] =
            quantize_compressed(values + group * kCompressedGroup, bytes + group * (kCompressedGroup / 2));
      }
      return;
  }
}

void decode_row(RowFormat format, const std::byte* row, int64_t dim, float* values) noexcept {
  const auto* bytes = reinterpret_cast<const uint8_t*>(row);
  switch (format) {
    case RowFormat::kBF16:
      for (int64_t d = 0; d < dim; ++d) {
        bf16 value;
        std::memcpy(&value, row + d * 2, sizeof value);
        values[d] = to_float(value);
      }
      return;
    case RowFormat::kMxfp8:
      for (int64_t group = 0; group < dim / kMxGroup; ++group) {
        dequantize_mxfp8(bytes + group * kMxGroup, bytes[dim + group], values + group * kMxGroup);
      }
      return;
    case RowFormat::kCompressed:
      for (int64_t group = 0; group < dim / kCompressedGroup; ++group) {
        dequantize_compressed(bytes + group * (kCompressedGroup / 2), bytes[dim / 2 + group],
                              values + group * kCompressedGroup);
      }
      return;
  }
}

float fp8_index_scale(const float* values, int64_t dim) noexcept {
  // Ordered by bits, in which NaN lies above infinity.
  uint32_t largest = 0;
  for (int64_t d = 0; d < dim; ++d) largest = std::max(largest, std::bit_cast<uint32_t>(std::fabs(values[d])));
  return e8m0_to_float(e8m0_ceil(std::max(std::bit_cast<float>(largest), kAmaxFloor) / kE4M3Max));
}

void fake_quantize_index(IndexFormat format, float* values, int64_t dim) noexcept {
  if (format == IndexFormat::kFp4) {
    fake_quantize_mxfp4(values, dim);
    return;
  }
  const float scale = fp8_index_scale(values, dim);
  for (int64_t d = 0; d < dim; ++d) values[d] = e4m3_to_float(fp8_index_code(values[d], scale)) * scale;
}

void encode_index_key(const IndexPlane& plane, int64_t flat_row, const float* key) noexcept {
  const IndexBlock block = locate(plane, flat_row);
  if (plane.format == IndexFormat::kFp8) {
    const float scale = fp8_index_scale(key, plane.dim);
    for (int64_t d = 0; d < plane.dim; ++d) {
      block.values[fp8_index_offset(block.row, d)] = static_cast<std::byte>(fp8_index_code(key[d], scale));
    }
    std::memcpy(block.scales + block.row * 4, &scale, sizeof scale);
    return;
  }
  std::array<uint8_t, kMxGroup / 2> packed;
  for (int64_t group = 0; group < plane.dim / kMxGroup; ++group) {
    const uint8_t scale = quantize_mxfp4(key + group * kMxGroup, packed.data());
    for (int64_t b = 0; b < kMxGroup / 2; ++b) {
      block.values[fp4_index_offset(block.row, group * (kMxGroup / 2) + b, plane.dim)] =
          static_cast<std::byte>(packed[static_cast<size_t>(b)]);
    }
    block.scales[fp4_index_scale_offset(block.row, group)] = static_cast<std::byte>(scale);
  }
}

void decode_index_key(const IndexPlane& plane, int64_t flat_row, float* key) noexcept {
  const IndexBlock block = locate(plane, flat_row);
  if (plane.format == IndexFormat::kFp8) {
    float scale = 0;
    std::memcpy(&scale, block.scales + block.row * 4, sizeof scale);
    for (int64_t d = 0; d < plane.dim; ++d) {
      key[d] = e4m3_to_float(static_cast<uint8_t>(block.values[fp8_index_offset(block.row, d)])) * scale;
    }
    return;
  }
  std::array<uint8_t, kMxGroup / 2> packed;
  for (int64_t group = 0; group < plane.dim / kMxGroup; ++group) {
    for (int64_t b = 0; b < kMxGroup / 2; ++b) {
      packed[static_cast<size_t>(b)] =
          static_cast<uint8_t>(block.values[fp4_index_offset(block.row, group * (kMxGroup / 2) + b, plane.dim)]);
    }
    dequantize_mxfp4(packed.data(), static_cast<uint8_t>(block.scales[fp4_index_scale_offset(block.row, group)]),
                     key + group * kMxGroup);
  }
}

}  // namespace ps::ops
