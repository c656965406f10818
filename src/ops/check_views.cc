#include "ops/check_views.h"

#include <string>

#include "base/macros.h"
#include "ops/check_args.h"

namespace ps::ops {
namespace {

constexpr int64_t kWeightBlock = 32;

std::string_view format_name(WeightFormat format) noexcept {
  switch (format) {
    case WeightFormat::kF32: return "F32";
    case WeightFormat::kBF16: return "BF16";
    case WeightFormat::kFp8Block32: return "FP8";
    case WeightFormat::kFp4Block32: return "FP4";
  }
  return "of an unknown format";
}

std::string shape(int64_t rows, int64_t columns) {
  return "[" + std::to_string(rows) + ", " + std::to_string(columns) + "]";
}

bool same_layout(const ConstActivations& left, const ConstActivations& right) noexcept {
  return left.data == right.data && left.dtype == right.dtype && (left.stride == right.stride || left.rows <= 1);
}

bool overlap(const ConstActivations& left, const ConstActivations& right) noexcept {
  if (left.rows == 0 || right.rows == 0 || left.columns == 0 || right.columns == 0) return false;
  const int64_t left_bytes = left.columns * dtype_bytes(left.dtype);
  const int64_t right_bytes = right.columns * dtype_bytes(right.dtype);
  const int64_t left_stride = left.stride * dtype_bytes(left.dtype);
  const int64_t right_stride = right.stride * dtype_bytes(right.dtype);
  const auto left_begin = reinterpret_cast<intptr_t>(left.data);
  const auto right_begin = reinterpret_cast<intptr_t>(right.data);
  const int64_t distance = right_begin - left_begin;
  if (distance >= (left.rows - 1) * left_stride + left_bytes) return false;
  if (-distance >= (right.rows - 1) * right_stride + right_bytes) return false;
  if (left_stride != right_stride || left_stride == 0) return true;
  // Rows interleave: compare the column ranges inside one stride.
  const int64_t offset = ((distance % left_stride) + left_stride) % left_stride;
  return offset < left_bytes || offset + right_bytes > left_stride;
}

}  // namespace

Status expect_positive(std::string_view name, int64_t value) {
  if (value > 0) return {};
  return Status::invalid(std::string(name) + " is " + std::to_string(value) + ", expected at least 1");
}

Status expect_multiple(std::string_view name, int64_t value, int64_t factor) {
  if (value % factor == 0) return {};
  return Status::invalid(std::string(name) + " is " + std::to_string(value) + ", not a multiple of " +
                         std::to_string(factor));
}

Status expect_array(std::string_view name, const void* data, int64_t rows) {
  if (data != nullptr || rows == 0) return {};
  return Status::invalid(std::string(name) + " is null");
}

Status expect_weight(std::string_view name, const Weight& w) {
  if (w.rows <= 0 || w.columns <= 0) return Status::invalid(std::string(name) + " is " + shape(w.rows, w.columns));
  if (w.data == nullptr) return Status::invalid(std::string(name) + " has no data");
  if (is_quantized(w.format) != (w.scale != nullptr)) {
    return Status::invalid(std::string(name) + " is " + std::string(format_name(w.format)) +
                           (w.scale == nullptr ? " without scales" : " with scales"));
  }
  const bool whole_columns = w.columns % kWeightBlock == 0;
  const bool whole_rows = w.rows % kWeightBlock == 0 || w.format != WeightFormat::kFp8Block32;
  if (is_quantized(w.format) && !(whole_columns && whole_rows)) {
    return Status::invalid(std::string(name) + " is " + std::string(format_name(w.format)) + " of " +
                           shape(w.rows, w.columns) + ", not whole blocks of 32");
  }
  return {};
}

Status expect_weight(std::string_view name, const Weight& w, int64_t rows, int64_t columns) {
  if (w.rows != rows || w.columns != columns) {
    return Status::invalid(std::string(name) + " is " + shape(w.rows, w.columns) + ", expected " +
                           shape(rows, columns));
  }
  return expect_weight(name, w);
}

Status expect_plain_weight(std::string_view name, const Weight& w, int64_t rows, int64_t columns) {
  if (is_quantized(w.format)) {
    return Status::invalid(std::string(name) + " is " + std::string(format_name(w.format)) + ", expected BF16 or F32");
  }
  return expect_weight(name, w, rows, columns);
}

Status expect_vector(std::string_view name, const Vector& vector, int64_t size) {
  if (vector.dtype != DType::kBF16 && vector.dtype != DType::kF32) {
    return Status::invalid(std::string(name) + " is " + std::string(dtype_name(vector.dtype)) +
                           ", expected BF16 or F32");
  }
  if (vector.size != size) {
    return Status::invalid(std::string(name) + " has " + std::to_string(vector.size) + " values, expected " +
                           std::to_string(size));
  }
  return expect_array(name, vector.data, size);
}

Status expect_input_grid(std::string_view name, const ConstActivations& x, std::string_view weight_name,
                         const Weight& w) {
  if ((x.grid == Grid::kMxfp8) == is_quantized(w.format)) return {};
  const std::string left(name);
  const std::string right = std::string(weight_name) + " is " + std::string(format_name(w.format));
  if (is_quantized(w.format)) return Status::invalid(right + ", but " + left + " is not on the MXFP8 grid");
  return Status::invalid(right + ", but " + left + " is on the MXFP8 grid");
}

Status expect_no_grid(std::string_view name, const ConstActivations& x) {
  if (x.grid == Grid::kNone) return {};
  return Status::invalid(std::string(name) + " is written unquantized, but claims the MXFP8 grid");
}

Status expect_apart(std::string_view left_name, const ConstActivations& left, std::string_view right_name,
                    const ConstActivations& right) {
  if (!overlap(left, right)) return {};
  return Status::invalid(std::string(left_name) + " and " + std::string(right_name) + " overlap");
}

Status expect_same_or_apart(std::string_view left_name, const ConstActivations& left, std::string_view right_name,
                            const ConstActivations& right) {
  if (same_layout(left, right)) return {};
  return expect_apart(left_name, left, right_name, right);
}

}  // namespace ps::ops
