// Row-wise ops of the backbone: embedding, RMSNorm, RoPE, scaling, compaction. See model.md 0, 2.3, 2.4.
#pragma once

#include "base/status.h"
#include "ops/exec.h"
#include "ops/views.h"

namespace ps::ops {

// h[t, c * D + k] = W[ids[t], k] for each of `streams` residual streams.
struct EmbedArgs {
  const int32_t* ids = nullptr;  // [T], each in [0, w.rows)
  Weight w;                      // [V, D], kBF16 or kF32
  Activations h;                 // [T, streams * D]
  int32_t streams = 1;
};
[[nodiscard]] Status check(const EmbedArgs& args);

// y = w * (x * r), r = 1 / sqrt(mean(x^2) + eps): F32, one rounding at the store. Sum of squares in lane-16 order
// (numerics.h).
struct RmsNormArgs {
  ConstActivations x;  // [T, D]
  Vector w;            // [D]
  Activations y;       // [T, D]; may be x itself
  float eps = 0;
};
[[nodiscard]] Status check(const RmsNormArgs& args);

// Rotates the last 2 * pairs channels of every head, adjacent channels (2i, 2i+1), in place:
//   (a, b) -> (fma(a, cos, -(b * sin)), fma(a, sin, b * cos)); the inverse negates sin.
// The angle is the F32 product of F32(position) and inverse_frequency[i]; its cosine and sine are taken in F64 and
// rounded.
struct RopeArgs {
  Activations x;                             // [T, heads * head_dim]
  const int32_t* positions = nullptr;        // [T]
  const float* inverse_frequency = nullptr;  // [pairs]
  int32_t heads = 1;
  int32_t pairs = 0;  // 2 * pairs <= head_dim
  bool inverse = false;
};
[[nodiscard]] Status check(const RopeArgs& args);

// y = x * factor, one F32 product, rounded at the store.
struct ScaleArgs {
  ConstActivations x;  // [T, D]
  float factor = 1;
  Activations y;  // [T, D]; may be x itself
};
[[nodiscard]] Status check(const ScaleArgs& args);

// Keeps the rows `rows[0] < rows[1] < ...` of an array, moved to its front, in place.
struct CompactRowsArgs {
  void* data = nullptr;
  int64_t row_bytes = 0;
  const int32_t* rows = nullptr;  // [count], ascending
  int32_t count = 0;
};
[[nodiscard]] Status check(const CompactRowsArgs& args);

namespace ref {
void compact_rows(const CompactRowsArgs& args, Exec& exec);
void scale(const ScaleArgs& args, Exec& exec);
void embed(const EmbedArgs& args, Exec& exec);
void rms_norm(const RmsNormArgs& args, Exec& exec);
void rope(const RopeArgs& args, Exec& exec);
}  // namespace ref

}  // namespace ps::ops
