#include "ops/views.h"

#include "base/macros.h"

namespace ps::ops {

Weight weight_rows(const Weight& weight, int64_t first, int64_t count) noexcept {
  PS_CHECK(first >= 0 && count >= 0 && first + count <= weight.rows, first, count, weight.rows);
  Weight part = weight;
  part.rows = count;
  switch (weight.format) {
    case WeightFormat::kF32: part.data += first * weight.columns * 4; break;
    case WeightFormat::kBF16: part.data += first * weight.columns * 2; break;
    case WeightFormat::kFp8Block32:
      PS_CHECK(first % 32 == 0 && count % 32 == 0, first, count);
      part.data += first * weight.columns;
      part.scale += first / 32 * (weight.columns / 32);
      break;
    case WeightFormat::kFp4Block32:
      part.data += first * (weight.columns / 2);
      part.scale += first * (weight.columns / 32);
      break;
  }
  return part;
}

}  // namespace ps::ops
