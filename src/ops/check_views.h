// Building blocks of check(args) for weights, vectors, quantization grids and overlap; see check_args.h for the others.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "ops/views.h"

namespace ps::ops {

// At least one row of at least one value, whole quantization blocks, data present, and scales exactly when quantized.
[[nodiscard]] Status expect_weight(std::string_view name, const Weight& w);
[[nodiscard]] Status expect_weight(std::string_view name, const Weight& w, int64_t rows, int64_t columns);
// The same for tensors that are never quantized: BF16 or F32.
[[nodiscard]] Status expect_plain_weight(std::string_view name, const Weight& w, int64_t rows, int64_t columns);
// BF16 or F32, `size` values, present.
[[nodiscard]] Status expect_vector(std::string_view name, const Vector& vector, int64_t size);

[[nodiscard]] Status expect_positive(std::string_view name, int64_t value);
[[nodiscard]] Status expect_multiple(std::string_view name, int64_t value, int64_t factor);
// An array that may be null only if it has no rows.
[[nodiscard]] Status expect_array(std::string_view name, const void* data, int64_t rows);

// x is on the MXFP8 grid exactly when w is quantized.
[[nodiscard]] Status expect_input_grid(std::string_view name, const ConstActivations& x, std::string_view weight_name,
                                       const Weight& w);
// An op that does not quantize writes to a buffer that does not claim a grid.
[[nodiscard]] Status expect_no_grid(std::string_view name, const ConstActivations& x);

// No element is shared. Column ranges of one buffer are apart when their rows interleave.
[[nodiscard]] Status expect_apart(std::string_view left_name, const ConstActivations& left, std::string_view right_name,
                                  const ConstActivations& right);
// The same buffer in the same layout, or no element shared.
[[nodiscard]] Status expect_same_or_apart(std::string_view left_name, const ConstActivations& left,
                                          std::string_view right_name, const ConstActivations& right);

}  // namespace ps::ops
