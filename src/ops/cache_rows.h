// One row of a cache, through its view, as floats: what the references and the tests read and write.
//
// Knows the byte layouts of cache_views.h and the quantizers of base/quantize.h; knows no addresses beyond the view's
// and no request. Encoding a value that already lies on the format's grid is lossless, so it does not matter whether a
// caller rounded it before. A NaN stays a NaN. Pure functions, any thread; two threads may not write one row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cache_views.h"

namespace ps::ops {

// Widest index key: references keep a block of 8 decoded keys on the stack. check() refuses wider ones.
inline constexpr int32_t kMaxIndexDim = 512;

// values[dim] -> one row. kBF16 rounds to BF16, the packed formats quantize group by group (Q8 of 32, Q4k of 16).
// REQUIRES: dim is a multiple of 32.
void encode_row(RowFormat format, const float* values, int64_t dim, std::byte* row) noexcept;

// One row -> values[dim], exact.
void decode_row(RowFormat format, const std::byte* row, int64_t dim, float* values) noexcept;

// The power-of-two scale of an FP8 index key or query: 2^ceil(log2(max(amax, 1e-4) / 448)); NaN if a value is not
// finite.
[[nodiscard]] float fp8_index_scale(const float* values, int64_t dim) noexcept;

// Rounds a key or query to the grid of the index format, in place. REQUIRES: dim is a multiple of 32.
void fake_quantize_index(IndexFormat format, float* values, int64_t dim) noexcept;

// key[dim] -> row `flat_row` of the plane (IndexPlane::flat_row), values and scales.
void encode_index_key(const IndexPlane& plane, int64_t flat_row, const float* key) noexcept;

// Row `flat_row` of the plane -> key[dim], exact.
void decode_index_key(const IndexPlane& plane, int64_t flat_row, float* key) noexcept;

}  // namespace ps::ops
