#include "ops/check_args.h"

#include <string>

#include "base/macros.h"
#include "ops/cache_rows.h"

namespace ps::ops {
namespace {

constexpr int64_t kRowGroup = 32;  // dims of a cache row come in groups of the widest quantizer

Status expect_row_dim(std::string_view name, int64_t dim) {
  if (dim > 0 && dim % kRowGroup == 0) return {};
  return Status::invalid(std::string(name) + " has " + std::to_string(dim) + " dims, not a positive multiple of 32");
}

}  // namespace

Status expect(bool condition, std::string_view message) {
  return condition ? Status() : Status::invalid(std::string(message));
}

Status expect_equal(std::string_view left_name, int64_t left, std::string_view right_name, int64_t right) {
  if (left == right) return {};
  return Status::invalid(std::string(left_name) + " is " + std::to_string(left) + ", but " + std::string(right_name) +
                         " is " + std::to_string(right));
}

Status expect_matrix(std::string_view name, const ConstActivations& x, int64_t rows, int64_t columns) {
  if (x.rows != rows || x.columns != columns) {
    return Status::invalid(std::string(name) + " is [" + std::to_string(x.rows) + ", " + std::to_string(x.columns) +
                           "], expected [" + std::to_string(rows) + ", " + std::to_string(columns) + "]");
  }
  if (x.dtype != DType::kBF16 && x.dtype != DType::kF32) {
    return Status::invalid(std::string(name) + " is " + std::string(dtype_name(x.dtype)) + ", expected BF16 or F32");
  }
  if (rows == 0) return {};
  if (x.data == nullptr) return Status::invalid(std::string(name) + " has no data");
  if (x.stride < columns) {
    return Status::invalid(std::string(name) + " has rows of " + std::to_string(columns) + " values, but a stride of " +
                           std::to_string(x.stride));
  }
  return {};
}

Status expect_dtype(std::string_view name, const ConstActivations& x, DType dtype) {
  if (x.dtype == dtype) return {};
  return Status::invalid(std::string(name) + " is " + std::string(dtype_name(x.dtype)) + ", expected " +
                         std::string(dtype_name(dtype)));
}

Status expect_batch(const Batch* batch, bool needs_pages) {
  if (batch == nullptr) return Status::invalid("no batch");
  PS_RETURN_IF_ERROR(expect(batch->tokens >= 0 && batch->requests >= 0, "the batch has a negative size"));
  PS_RETURN_IF_ERROR(expect(batch->tokens == 0 || (batch->positions != nullptr && batch->request_of_row != nullptr),
                            "the batch has rows without positions or requests"));
  if (batch->requests == 0) return {};
  PS_RETURN_IF_ERROR(expect(batch->row_start != nullptr && batch->slots != nullptr,
                            "the batch has requests without row starts or slots"));
  return expect(!needs_pages || (batch->block_tables != nullptr && batch->block_table_stride > 0),
                "the batch has requests without block tables");
}

Status expect_window_ring(const WindowRing& ring, int64_t dim) {
  PS_RETURN_IF_ERROR(expect(ring.base != nullptr, "the window ring has no data"));
  PS_RETURN_IF_ERROR(expect_row_dim("the window ring", ring.dim));
  PS_RETURN_IF_ERROR(expect_equal("dims of the window ring", ring.dim, "dims of kv", dim));
  PS_RETURN_IF_ERROR(expect(ring.ring_slots > 0, "the window ring has no slots"));
  PS_RETURN_IF_ERROR(
      expect(ring.format == RowFormat::kBF16 || ring.format == RowFormat::kMxfp8, "window rows are BF16 or MXFP8"));
  return expect(ring.slot_stride_bytes >= ring.ring_slots * row_bytes(ring.format, ring.dim),
                "the window rings of two STATE slots overlap");
}

Status expect_main_plane(const MainPlane& plane, int64_t dim) {
  PS_RETURN_IF_ERROR(expect(plane.base != nullptr, "the main plane has no data"));
  PS_RETURN_IF_ERROR(expect_row_dim("the main plane", plane.dim));
  PS_RETURN_IF_ERROR(expect_equal("dims of the main plane", plane.dim, "dims of a row", dim));
  PS_RETURN_IF_ERROR(expect(plane.ratio > 0 && plane.rows_per_page > 0, "the main plane has no ratio or no rows"));
  PS_RETURN_IF_ERROR(expect(plane.format == RowFormat::kBF16 || plane.format == RowFormat::kCompressed,
                            "main rows are BF16 or packed"));
  return expect(plane.page_stride_bytes >= plane.rows_per_page * row_bytes(plane.format, plane.dim),
                "the main rows of two PAGEs overlap");
}

Status expect_compressor_ring(const CompressorRing& ring, int64_t dim) {
  PS_RETURN_IF_ERROR(expect(ring.kv != nullptr && ring.score != nullptr, "the compressor ring has no data"));
  PS_RETURN_IF_ERROR(expect_equal("dims of the compressor ring", ring.dim, "dims of kv", dim));
  PS_RETURN_IF_ERROR(expect(ring.ring_slots > 0, "the compressor ring has no slots"));
  return expect(ring.slot_stride_bytes >= int64_t{ring.ring_slots} * ring.dim * 4,
                "the compressor rings of two STATE slots overlap");
}

Status expect_index_dim(int64_t dim) {
  PS_RETURN_IF_ERROR(expect_row_dim("an index key", dim));
  if (dim <= kMaxIndexDim) return {};
  return Status::invalid("an index key has " + std::to_string(dim) + " dims, more than " +
                         std::to_string(kMaxIndexDim));
}

Status expect_index_plane(const IndexPlane& plane) {
  PS_RETURN_IF_ERROR(expect(plane.values != nullptr, "the index plane has no data"));
  PS_RETURN_IF_ERROR(expect((plane.format == IndexFormat::kFp4) == (plane.scales != nullptr),
                            "an FP4 index plane has a plane of scales, an FP8 one has none"));
  PS_RETURN_IF_ERROR(expect_index_dim(plane.dim));
  PS_RETURN_IF_ERROR(expect(plane.ratio > 0, "the index plane has no ratio"));
  return expect(plane.rows_per_page > 0 && plane.rows_per_page % kIndexBlockRows == 0,
                "index rows per PAGE must be a positive multiple of 8");
}

}  // namespace ps::ops
