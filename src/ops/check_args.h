// Building blocks of check(args): each returns ok, or a Status that names the argument and the numbers that disagree.
//
// They look at shapes, dtypes, formats and null pointers only, never at what a pointer points to: the arrays of a batch
// may lie on a device. A buffer of no rows may be null.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "ops/batch.h"
#include "ops/cache_views.h"
#include "ops/views.h"

namespace ps::ops {

[[nodiscard]] Status expect(bool condition, std::string_view message);
[[nodiscard]] Status expect_equal(std::string_view left_name, int64_t left, std::string_view right_name, int64_t right);

// [rows, columns] of BF16 or F32, present, and with rows that do not overlap.
[[nodiscard]] Status expect_matrix(std::string_view name, const ConstActivations& x, int64_t rows, int64_t columns);
[[nodiscard]] Status expect_dtype(std::string_view name, const ConstActivations& x, DType dtype);

// The batch is there with the arrays that every op reads; `needs_pages` adds the block tables.
[[nodiscard]] Status expect_batch(const Batch* batch, bool needs_pages);

[[nodiscard]] Status expect_window_ring(const WindowRing& ring, int64_t dim);
[[nodiscard]] Status expect_main_plane(const MainPlane& plane, int64_t dim);
[[nodiscard]] Status expect_compressor_ring(const CompressorRing& ring, int64_t dim);
[[nodiscard]] Status expect_index_plane(const IndexPlane& plane);
// `dim` values of an index key or query.
[[nodiscard]] Status expect_index_dim(int64_t dim);

}  // namespace ps::ops
